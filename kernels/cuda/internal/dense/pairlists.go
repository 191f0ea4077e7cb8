package dense

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// How dense_lists works: its steps, and up to how many pairs and items one block does all of them.
const (
	listSteps, listSums = 5, 2
	listAlone           = 1 << 14
	listThreads         = 1024
)

// items is which item of queries and of documents each listed pair has: addresses of int32 [Count].
func (p *PairList) items() [2]driver.Ptr {
	return [2]driver.Ptr{driver.Ptr(p.Queries), driver.Ptr(p.Documents)}
}

// pairListPlace is where the workspace of a call has the lists of the pairs of each item, for the
// sides that need them.
type pairListPlace struct {
	needed              [2]bool
	items               [2]int
	first, loose, pairs [2]int64
}

// lay takes room for the lists of a side, of n pairs.
func (l *pairListPlace) lay(a *runtime.Arena, side int, b *Batch, n int) {
	l.needed[side], l.items[side] = true, b.Items
	l.first[side] = a.Take(4 * int64(b.Items+1))
	l.loose[side], l.pairs[side] = a.Take(4*int64(n)), a.Take(4*int64(n))
}

// side is where the lists of a side are; zero where they are not needed.
func (l *pairListPlace) side(i int, base driver.Ptr, list *PairList) (s denseListSide) {
	if l.needed[i] {
		s = denseListSide{
			item: list.items()[i], items: uint32(l.items[i]),
			first: base.Add(l.first[i]), loose: base.Add(l.loose[i]), pairs: base.Add(l.pairs[i]),
		}
	}
	return s
}

// run makes the lists of n pairs in the workspace.
func (l *pairListPlace) run(rt *runtime.Runtime, base driver.Ptr, list *PairList, n int) error {
	if l.needed == [2]bool{} {
		return nil
	}
	x := denseListsParams{q: l.side(0, base, list), d: l.side(1, base, list), n: uint32(n), end: listSteps}
	return x.run(rt)
}

// run makes the lists.
func (x *denseListsParams) run(rt *runtime.Runtime) error {
	most := int(max(x.n, x.q.items+1, x.d.items+1))
	if most <= listAlone {
		return runtime.Launch(rt, "dense/dense_lists", 1, 1, 1, listThreads, 0, x)
	}
	for step := range uint32(listSteps) {
		blocks := min(runtime.CeilDiv(most, listThreads), math.MaxUint16)
		if step == listSums {
			blocks = 1
		}
		alone := *x
		alone.from, alone.end = step, step+1
		if err := runtime.Launch(rt, "dense/dense_lists", blocks, 1, 1, listThreads, 0, &alone); err != nil {
			return err
		}
	}
	return nil
}
