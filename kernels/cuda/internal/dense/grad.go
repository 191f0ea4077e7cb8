package dense

import (
	"context"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Gradients implements [maxsim.Backend].
func (b *backend) Gradients(ctx context.Context, g *maxsim.GradCall) error {
	w, err := g.Check()
	if err != nil {
		return err
	}
	d := &gradientCall{call: g, size: w}
	if d.q, err = b.resolveOperand(g.Q); err != nil {
		return err
	}
	if d.d, err = b.resolveOperand(g.D); err != nil {
		return err
	}
	if g.DQ == nil && g.DD == nil {
		return nil
	}
	if err := d.makeTables(); err != nil {
		return err
	}
	return b.submit(ctx, "gradients of", d.run)
}

// gradientCall is a call of Gradients in progress. All of its operands and argmaxima are on the device
// at the same time.
type gradientCall struct {
	call *maxsim.GradCall
	size maxsim.Work
	q, d operand

	kind   PairKind
	lo, hi int // the documents that may have a gradient
	pairs  int // of each query, unless pairs are listed
	// The listed pairs, and the first rows of queries and documents.
	lists   [2]itemPairs
	offsets [2][]uint32
	arg     []int32

	weights    []float32
	params     *denseGradParams
	outQ, outD int64
}

// itemPairs has, for one side, the item of each pair, and the pairs of each item, in order: those of item
// i are pairs[first[i]:first[i+1]].
type itemPairs struct{ item, first, pairs []uint32 }

// newItemPairs lists the pairs of each item of a side; item returns the item of a pair.
func newItemPairs(items, pairs int, item func(pair int) int) (l itemPairs) {
	l.item, l.first, l.pairs = make([]uint32, pairs), make([]uint32, items+1), make([]uint32, pairs)
	for i := range l.item {
		x := item(i)
		l.item[i] = uint32(x)
		l.first[x+1]++
	}
	for i := 1; i <= items; i++ {
		l.first[i] += l.first[i-1]
	}
	next := append([]uint32(nil), l.first...)
	for i, x := range l.item {
		l.pairs[next[x]] = uint32(i)
		next[x]++
	}
	return l
}

// listBoth returns n pairs by the items of both sides.
func listBoth(p *maxsim.Pairs, n, nq, nd int) [2]itemPairs {
	return [2]itemPairs{
		newItemPairs(nq, n, func(i int) int { query, _ := p.PairAt(i, nd); return query }),
		newItemPairs(nd, n, func(i int) int { _, doc := p.PairAt(i, nd); return doc }),
	}
}

// pairKindOf converts a kind of pairs for the kernels of gradients.
func pairKindOf(p *maxsim.Pairs) PairKind {
	switch {
	case p.Kind == maxsim.AllPairs:
		return PairsAll
	case p.Kind == maxsim.CandidatePairs && p.Docs == nil:
		return PairsOwn
	}
	return PairsListed
}

// relativeOffsets returns the first tokens of items, and the end, relative to that of the first item.
func relativeOffsets(first []int) []uint32 {
	offsets := make([]uint32, len(first))
	for i, token := range first {
		offsets[i] = uint32(token - first[0])
	}
	return offsets
}

// makeTables makes the tables of a call. It runs on the caller's goroutine.
func (d *gradientCall) makeTables() error {
	c, nq, nd := d.call, d.q.shape.Len(), d.d.shape.Len()
	d.lo, d.hi = 0, nd
	d.kind = pairKindOf(&c.Pairs)
	switch d.kind {
	case PairsAll:
		d.pairs = d.size.Pairs / max(nq, 1)
		d.lo, d.hi = c.First, c.First+d.pairs
	case PairsOwn:
		d.pairs = c.K
	default:
		d.lists = listBoth(&c.Pairs, d.size.Pairs, nq, nd)
	}
	d.offsets = [2][]uint32{relativeOffsets(d.q.first), relativeOffsets(d.d.first[d.lo : d.hi+1])}
	if c.Weights != nil {
		d.weights = make([]float32, d.q.tokenCount())
		for i := range d.weights {
			d.weights[i] = c.Weights[d.q.sourceRow(i)]
		}
	}
	d.arg = c.Argmax
	if d.q.hasHoles || d.d.hasHoles {
		return d.gatherArgmax()
	}
	return nil
}

// gatherArgmax converts the argmaxima of all pairs from rows to tokens; see gatherRow.
func (d *gradientCall) gatherArgmax() error {
	stride, nd := d.size.Stride, d.d.shape.Len()
	d.arg = make([]int32, len(d.call.Argmax))
	for i := range d.size.Pairs {
		query, doc := d.call.PairAt(i, nd)
		lo, hi := i*stride, (i+1)*stride
		if err := gatherRow(&d.q, &d.d, d.arg[lo:hi], d.call.Argmax[lo:hi], query, doc, i); err != nil {
			return err
		}
	}
	return nil
}

// formatFor returns the format of rows for gradients and distances: that of the operand, except that
// batches of float32 stay float32 instead of being split.
func (s *operand) formatFor() format {
	if f := s.format(); f != split || s.held != nil {
		return f
	}
	return f32
}

// run computes the gradients and adds or writes them to the caller's memory.
func (d *gradientCall) run(ctx context.Context, rt *runtime.Runtime) error {
	if err := d.uploadAndSetParams(ctx, rt); err != nil {
		return err
	}
	if err := launchGradients(rt, d.params, d.size.Pairs); err != nil {
		return err
	}
	w := &rt.Work
	if err := rt.Driver.ToHost(w.HostOut[:d.outBytes()], w.Out.Ptr, rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	if d.call.DQ != nil {
		writeGradient(d.call.DQ, d.q.tokens, 0, d.q.shape.Len(),
			structsFrom[float32](w.HostOut[d.outQ:], d.q.tokenCount()*d.size.Q.Dim))
	}
	if d.call.DD != nil {
		writeGradient(d.call.DD, d.d.tokens, d.lo, d.hi,
			structsFrom[float32](w.HostOut[d.outD:], d.docRows()*d.size.Q.Dim))
	}
	return nil
}

// docRows returns the number of rows of the gradient of the documents.
func (d *gradientCall) docRows() int { return d.d.first[d.hi] - d.d.first[d.lo] }

// outBytes lays out the gradients in the output, and returns its size.
func (d *gradientCall) outBytes() int64 {
	var out runtime.Arena
	if d.call.DQ != nil {
		d.outQ = out.Append(4 * int64(d.q.tokenCount()) * int64(d.size.Q.Dim))
	}
	if d.call.DD != nil {
		d.outD = out.Append(4 * int64(d.docRows()) * int64(d.size.Q.Dim))
	}
	return out.Size
}

// uploadAndSetParams reserves the workspace, copies operands and tables to the device, and sets the
// parameters of the kernels.
func (d *gradientCall) uploadAndSetParams(ctx context.Context, rt *runtime.Runtime) error {
	c, w, dim := d.call, &rt.Work, d.size.Q.Dim
	var in tables
	var scratch runtime.Arena
	both := [2]*operand{&d.q, &d.d}
	lay, err := reserveOperands(&scratch, both, c.Normalize)
	if err != nil {
		return err
	}
	var tableOffsets [2]struct{ offsets, item, first, pairs int64 }
	for i := range tableOffsets {
		l := &d.lists[i]
		tableOffsets[i].offsets, tableOffsets[i].item = addTable(&in, d.offsets[i]), addTable(&in, l.item)
		tableOffsets[i].first, tableOffsets[i].pairs = addTable(&in, l.first), addTable(&in, l.pairs)
	}
	arg, weights, upstream := addTable(&in, d.arg), addTable(&in, d.weights), addTable(&in, c.Upstream)
	if err := w.Reserve(runtime.WorkspaceSizes{In: in.Size, Out: d.outBytes(), Scratch: scratch.Size}); err != nil {
		return err
	}
	in.write(w.HostIn)
	if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:in.Size], rt.Stream); err != nil {
		return err
	}
	r, err := uploadOperands(ctx, rt, both, lay)
	if err != nil {
		return err
	}
	p := &denseGradParams{
		arg:   w.In.At(arg),
		pitch: uint32(d.size.Stride),
		dim:   uint32(dim),
		kind:  uint32(d.kind),
		count: uint32(d.pairs),
	}
	if d.weights != nil {
		p.weights = w.In.At(weights)
	}
	if c.Upstream != nil {
		p.upstream = w.In.At(upstream)
	}
	r[1] = r[1].startingAt(d.d.first[d.lo])
	for i, s := range []*denseGradSide{&p.q, &p.d} {
		rows, first := &r[i], d.offsets[i]
		*s = denseGradSide{
			rows:     rows.ptr,
			scale:    rows.scaleFor(c.Normalize),
			format:   uint32(rows.format),
			rowBytes: uint32(rows.rowBytes),
			offsets:  w.In.At(tableOffsets[i].offsets),
			items:    uint32(len(first) - 1),
			nRows:    uint64(first[len(first)-1]),
			longest:  uint32(both[i].longestItem()),
			outType:  uint32(maxsim.F32),
		}
		if c.Normalize {
			s.inverse = rows.inverse
		}
		if d.kind == PairsListed {
			s.pairItem, s.pairFirst = w.In.At(tableOffsets[i].item), w.In.At(tableOffsets[i].first)
			s.pairs = w.In.At(tableOffsets[i].pairs)
		}
	}
	if c.DQ != nil {
		p.q.out = w.Out.At(d.outQ)
	}
	if c.DD != nil {
		p.d.out = w.Out.At(d.outD)
	}
	d.params = p
	return nil
}

// writeGradient writes the gradient of the items lo to hi with several goroutines. Rows that
// are not tokens of these items get 0, unless the call adds to the gradient.
func writeGradient(to *maxsim.Gradient, t *tokens, lo, hi int, from []float32) {
	first, n, dim := t.first[lo], t.first[hi]-t.first[lo], t.shape.Dim
	const block = 1 << 18 // values
	rows := max(block/dim, 1)
	forEachRow := func(n int, fn func(i int)) {
		blocks := parallel.Blocks(n, rows)
		_ = parallel.Do(context.Background(), blocks, parallel.Threads(0, blocks), func(b int) error {
			lo, hi := parallel.Block(b, n, rows)
			for i := lo; i < hi; i++ {
				fn(i)
			}
			return nil
		})
	}
	if !to.Add && n < to.Rows() {
		zero := make([]float32, dim)
		forEachRow(to.Rows(), func(r int) { to.Put(r, zero) })
	}
	forEachRow(n, func(i int) { to.Put(t.sourceRow(first+i), from[i*dim:(i+1)*dim]) })
}
