package dense

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// Sizes of dense_lists, which sorts pairs: the maximum of pairs and items that one block sorts alone, the
// maximum of blocks, the threads of a block, and the values of a digit.
const (
	listSingleBlock, listBlocks = 1 << 14, 128
	listThreads, listDigits     = 1024, 256
)

// itemLists returns the addresses, int32 [Count], of the queries and of the documents of listed pairs.
func (p *PairList) itemLists() [2]driver.Ptr {
	return [2]driver.Ptr{driver.Ptr(p.Queries), driver.Ptr(p.Documents)}
}

// pairListLayout has the offsets in the workspace of the lists of the pairs of each item, for the
// sides that need them.
type pairListLayout struct {
	needed                      [2]bool
	items                       [2]int
	first, loose, pairs, counts [2]int64
}

// reserve reserves memory for the lists of a side with n pairs.
func (l *pairListLayout) reserve(a *runtime.Arena, side int, b *Batch, n int) {
	l.needed[side], l.items[side] = true, b.Items
	l.first[side] = a.Append(4 * int64(b.Items+1))
	l.loose[side], l.pairs[side] = a.Append(4*int64(n)), a.Append(4*int64(n))
	l.counts[side] = a.Append(4 * listDigits * int64(min(runtime.CeilDiv(n, listThreads), listBlocks)))
}

// sideParams returns the addresses of the lists of side i; zero if they are not needed.
func (l *pairListLayout) sideParams(i int, base driver.Ptr, list *PairList) (s denseListSide) {
	if l.needed[i] {
		s = denseListSide{
			item:   list.itemLists()[i],
			items:  uint32(l.items[i]),
			first:  base.Add(l.first[i]),
			loose:  base.Add(l.loose[i]),
			pairs:  base.Add(l.pairs[i]),
			counts: base.Add(l.counts[i]),
		}
	}
	return s
}

// run launches the kernels that make the lists of n pairs in the workspace.
func (l *pairListLayout) run(rt *runtime.Runtime, base driver.Ptr, list *PairList, n int) error {
	if l.needed == [2]bool{} {
		return nil
	}
	x := denseListsParams{q: l.sideParams(0, base, list), d: l.sideParams(1, base, list), n: uint32(n)}
	return x.run(rt)
}

// run launches the kernel for all steps: a radix sort with a pass for each byte of the numbers of items, of
// two steps each, and a last step for the first pair of each item.
func (x *denseListsParams) run(rt *runtime.Runtime) error {
	items := max(x.q.items, x.d.items)
	for x.passes = 1; items>>(8*x.passes) > 0; x.passes++ {
	}
	steps, blocks := 2*x.passes+1, min(runtime.CeilDiv(int(x.n), listThreads), listBlocks)
	stepsPerLaunch := uint32(1)
	if max(x.n, items) <= listSingleBlock { // a block needs no launch to wait for others
		stepsPerLaunch, blocks = steps, 1
	}
	for ; x.from < steps; x.from = x.end {
		x.end = x.from + stepsPerLaunch
		if x.from == 2*x.passes { // by item
			blocks = max(blocks, min(runtime.CeilDiv(int(items)+1, listThreads), listBlocks))
		}
		launch := *x
		if err := runtime.Launch(rt, "dense/dense_lists", blocks, 2, 1, listThreads, 0, &launch); err != nil {
			return err
		}
	}
	return nil
}
