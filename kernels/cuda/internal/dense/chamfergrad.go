package dense

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// chamferGrads is a call of ChamferGradients in progress.
type chamferGrads struct {
	sides
	call  *maxsim.ChamferGradCall
	kind  PairKind
	near  [2][]int32 // nearest tokens of the pairs, by side
	pairs []denseChamferPair
	items [2][]uint32  // the first token of each item, and the end
	lists [2]itemPairs // of listed pairs
}

// ChamferGradients implements [maxsim.ChamferScorer]. Each row of a gradient has one writer, which adds its
// contributions in a fixed order: results have the same bits each time.
func (b *backend) ChamferGradients(ctx context.Context, call *maxsim.ChamferGradCall) error {
	w, err := call.Check()
	if err != nil {
		return err
	}
	s, err := b.resolveSides(call.X, call.Y, w)
	if err != nil || call.DX == nil && call.DY == nil {
		return err
	}
	g := &chamferGrads{sides: s, call: call, near: [2][]int32{call.NearestX, call.NearestY}}
	if err := g.makeTables(); err != nil {
		return err
	}
	return b.submit(ctx, "gradients of", g.run)
}

// makeTables makes the tables of a call. It runs on the caller's goroutine.
func (g *chamferGrads) makeTables() error {
	n, ny := g.work.Pairs, g.work.Y.Len()
	g.pairs = make([]denseChamferPair, n)
	for p := range n {
		g.pairs[p] = g.chamferPair(g.call.PairAt(p, ny))
	}
	for i, s := range g.operands() {
		g.items[i] = relativeOffsets(s.first)
	}
	g.listPairs()
	if !g.x.hasHoles && !g.y.hasHoles {
		return nil
	}
	strides := [2]int{g.work.StrideX, g.work.StrideY}
	for i, s := range g.operands() {
		rowsOfPairs := g.near[i]
		g.near[i] = make([]int32, len(rowsOfPairs))
		for p := range n {
			x, y := g.call.PairAt(p, ny)
			items := [2]int{x, y}
			lo, hi := p*strides[i], (p+1)*strides[i]
			if err := gatherRow(s, g.operands()[1-i], g.near[i][lo:hi], rowsOfPairs[lo:hi], items[i], items[1-i],
				p); err != nil {
				return err
			}
		}
	}
	return nil
}

// listPairs lists the pairs of each item, unless they follow from the kind of pairs.
func (g *chamferGrads) listPairs() {
	n, nx, ny := g.work.Pairs, g.work.X.Len(), g.work.Y.Len()
	g.kind = pairKindOf(&g.call.Pairs)
	if g.kind == PairsAll && n != nx*ny { // only some of the items of Y
		g.kind = PairsListed
	}
	if g.kind == PairsListed {
		g.lists = listBoth(&g.call.Pairs, n, nx, ny)
	}
}

// chamferGradsLayout has the parameters of a call, and the addresses of its results and its workspace.
type chamferGradsLayout struct {
	plan     *chamferGradPlan
	params   *denseChamferGradParams
	base     driver.Ptr
	outBytes int64 // bytes
	grads    [2]int64
}

// gradients returns the outputs of both sides. A nil output is not wanted.
func (g *chamferGrads) gradients() [2]*maxsim.Gradient {
	return [2]*maxsim.Gradient{g.call.DX, g.call.DY}
}

// run computes the gradients, and copies them to the caller.
func (g *chamferGrads) run(ctx context.Context, rt *runtime.Runtime) error {
	layout, err := g.uploadAndPlan(ctx, rt)
	if err != nil {
		return err
	}
	if err := layout.plan.run(rt, layout.base, layout.params); err != nil {
		return err
	}
	w := &rt.Work
	if err := rt.Driver.ToHost(w.HostOut[:layout.outBytes], w.Out.Ptr, rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	for i, to := range g.gradients() {
		if s := g.operands()[i]; to != nil {
			writeGradient(to, s.tokens, 0, s.shape.Len(),
				structsFrom[float32](w.HostOut[layout.grads[i]:], s.tokenCount()*g.work.X.Dim))
		}
	}
	return nil
}

// uploadAndPlan plans a call, and copies its tables and tokens to the device.
func (g *chamferGrads) uploadAndPlan(ctx context.Context, rt *runtime.Runtime) (*chamferGradsLayout, error) {
	var in tables
	var out, scratch runtime.Arena
	both, to := g.operands(), g.gradients()
	lay, err := reserveOperands(&scratch, both, false)
	if err != nil {
		return nil, err
	}
	plan, err := planChamferGrad(chamferShape{
		metric:  g.call.Metric,
		dim:     g.work.X.Dim,
		pairs:   g.work.Pairs,
		rows:    [2]int{g.x.tokenCount(), g.y.tokenCount()},
		longest: [2]int{g.work.StrideX, g.work.StrideY},
	})
	if err != nil {
		return nil, err
	}
	layout := &chamferGradsLayout{plan: plan}
	base := scratch.Append(layout.plan.bytes)
	var near, items, first, list [2]int64
	pairs, upstream := addTable(&in, g.pairs), addTable(&in, g.call.Upstream)
	for i := range both {
		near[i], items[i] = addTable(&in, g.near[i]), addTable(&in, g.items[i])
		first[i], list[i] = addTable(&in, g.lists[i].first), addTable(&in, g.lists[i].pairs)
		if to[i] != nil {
			layout.grads[i] = out.Append(4 * int64(both[i].tokenCount()) * int64(g.work.X.Dim))
		}
	}
	w := &rt.Work
	if err := w.Reserve(runtime.WorkspaceSizes{In: in.Size, Out: out.Size, Scratch: scratch.Size}); err != nil {
		return nil, err
	}
	if g.rows, err = uploadOperands(ctx, rt, both, lay); err != nil {
		return nil, err
	}
	in.write(w.HostIn)
	if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:in.Size], rt.Stream); err != nil {
		return nil, err
	}
	layout.base, layout.outBytes = w.Scratch.At(base), out.Size
	p := &denseChamferGradParams{pairs: w.In.At(pairs), kind: uint32(g.kind), count: uint32(g.call.K)}
	if g.call.Upstream != nil {
		p.upstream = w.In.At(upstream)
	}
	if g.call.Mean {
		p.mean = 1
	}
	for i := range p.side {
		r := &g.rows[i]
		p.side[i] = denseChamferGradSide{
			rows:      r.ptr,
			scale:     r.scale,
			near:      w.In.At(near[i]),
			offsets:   w.In.At(items[i]),
			pairFirst: w.In.At(first[i]),
			pairList:  w.In.At(list[i]),
			items:     uint32(both[i].shape.Len()),
			bytes:     uint32(r.rowBytes),
			format:    uint32(r.format),
			outType:   uint32(f32),
		}
		if to[i] != nil {
			p.side[i].out = w.Out.At(layout.grads[i])
		}
	}
	layout.params = p
	return layout, nil
}

// gatherRow converts the winners of a pair from rows to tokens, the inverse of spreadRow: from has a
// row of the document for each row of the query, to gets a token for each token.
func gatherRow(q, d *operand, to, from []int32, query, doc, pair int) error {
	for r := range to {
		to[r] = -1
	}
	for r := range q.rowCount(query) {
		v := from[q.positionInSpan(query, r)]
		if v >= 0 && d.hasHoles {
			token, ok := d.tokenAtPosition(doc, int(v))
			if !ok {
				return fmt.Errorf("%w: row %d wins in pair %d and is masked", kernels.ErrShape, v, pair)
			}
			v = int32(token)
		}
		to[r] = v
	}
	return nil
}
