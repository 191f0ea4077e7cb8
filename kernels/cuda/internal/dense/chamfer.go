package dense

import (
	"context"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// chamferTile is how many rows of X, or of Y, a tile of dense_chamfer has.
const chamferTile = 64

// sides are the operands of a call of Chamfer, and where their rows lie.
type sides struct {
	x, y side
	work maxsim.ChamferWork
	rows [2]rows
}

func (b *backend) sides(x, y maxsim.Operand, w maxsim.ChamferWork) (s sides, err error) {
	s.work = w
	if s.x, err = b.side(x); err != nil {
		return s, err
	}
	s.y, err = b.side(y)
	return s, err
}

func (s *sides) both() [2]*side { return [2]*side{&s.x, &s.y} }

// pair is a pair of items without places of keys.
func (s *sides) pair(x, y int) denseChamferPair {
	return denseChamferPair{x: uint64(s.x.first[x]), y: uint64(s.y.first[y]), xLen: uint32(s.x.count(x)), yLen: uint32(s.y.count(y))}
}

// chamfer is a call under way.
type chamfer struct {
	sides
	limits limits
	call   *maxsim.ChamferCall
}

// Chamfer implements [maxsim.Chamfers].
func (b *backend) Chamfer(ctx context.Context, c *maxsim.ChamferCall) error {
	w, err := c.Check()
	if err != nil {
		return err
	}
	s, err := b.sides(c.X, c.Y, w)
	if err != nil || w.Pairs == 0 {
		return err
	}
	x := &chamfer{sides: s, limits: b.limits, call: c}
	return b.submit(ctx, "distances of", x.run)
}

// chamferPieces is where a piece of per pairs has its keys, its table and its results.
type chamferPieces struct {
	per                    int
	keys, table, distances int64
	near                   [2]int64 // −1: not asked for
	in, out                int64    // bytes
	lists                  [2][]int32
	strides                [2]int
	kernel                 string
	slots                  int // blocks that run at a time
}

func (c *chamfer) run(ctx context.Context, rt *runtime.Runtime) error {
	at, err := c.begin(ctx, rt)
	if err != nil {
		return err
	}
	pairs := make([]denseChamferPair, at.per)
	for lo := 0; lo < c.work.Pairs; lo += at.per {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.piece(rt, at, pairs[:min(at.per, c.work.Pairs-lo)], lo); err != nil {
			return err
		}
	}
	return nil
}

// begin cuts the pairs into pieces whose keys and results fit, and brings the tokens.
func (c *chamfer) begin(ctx context.Context, rt *runtime.Runtime) (*chamferPieces, error) {
	at := &chamferPieces{
		near: [2]int64{-1, -1}, lists: [2][]int32{c.call.NearestX, c.call.NearestY},
		strides: [2]int{c.work.StrideX, c.work.StrideY}, kernel: "dense/dense_chamfer_l2",
	}
	strides := at.strides[0] + at.strides[1]
	at.per = min(max(c.limits.out/(4+12*strides), 1), c.work.Pairs)
	var in, out, scratch runtime.Arena
	lay, err := layBoth(&scratch, c.both(), false)
	if err != nil {
		return nil, err
	}
	at.keys = scratch.Take(8 * int64(at.per) * int64(strides))
	at.table = place(&in, make([]denseChamferPair, at.per))
	at.distances = out.Take(4 * int64(at.per))
	for i, list := range at.lists {
		if list != nil {
			at.near[i] = out.Take(4 * int64(at.per) * int64(at.strides[i]))
		}
	}
	at.in, at.out = in.Size, out.Size
	if err := rt.Work.Reserve(at.in, at.out, scratch.Size, 0); err != nil {
		return nil, err
	}
	if c.rows, err = bringBoth(ctx, rt, c.both(), lay); err != nil {
		return nil, err
	}
	if c.call.Metric == maxsim.L1 {
		at.kernel = "dense/dense_chamfer_l1"
	}
	at.slots, err = rt.FillingBlocks(at.kernel, 128, 0)
	return at, err
}

// piece computes the pairs from lo on, as many as there is room for in the table.
func (c *chamfer) piece(rt *runtime.Runtime, at *chamferPieces, pairs []denseChamferPair, lo int) error {
	w, n := &rt.Work, len(pairs)
	tilesX, tilesY := 1, 1
	for i := range pairs {
		x, y := c.call.At(lo+i, c.work.Y.Len())
		pairs[i] = c.pair(x, y)
		pairs[i].keyX, pairs[i].keyY = uint64(i*at.strides[0]), uint64(at.per*at.strides[0]+i*at.strides[1])
		tilesX = max(tilesX, runtime.CeilDiv(c.x.count(x), chamferTile))
		tilesY = max(tilesY, runtime.CeilDiv(c.y.count(y), chamferTile))
	}
	put(w.HostIn[at.table:], pairs)
	if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:at.in], rt.Stream); err != nil {
		return err
	}
	if err := rt.Driver.Set(w.Scratch.At(at.keys), 0xFF, 8*int64(at.per)*int64(at.strides[0]+at.strides[1]), rt.Stream); err != nil {
		return err
	}
	rx, ry := &c.rows[0], &c.rows[1]
	p := &denseChamferParams{
		x: rx.rows, xScale: rx.scale, y: ry.rows, yScale: ry.scale, pairs: w.In.At(at.table), keys: w.Scratch.At(at.keys),
		xBytes: uint32(rx.rowBytes), yBytes: uint32(ry.rowBytes), xFormat: uint32(rx.format), yFormat: uint32(ry.format), dim: uint32(c.work.X.Dim),
	}
	// Some blocks for each that runs at a time, so that the last ones end together.
	along := min(tilesX, 1<<15)
	splits := min(tilesY, max(4*at.slots/(n*along), 1), 1<<15)
	if err := runtime.Launch(rt, at.kernel, n, along, splits, 128, 0, p); err != nil {
		return err
	}
	sum := &denseChamferSumParams{pairs: p.pairs, keys: p.keys, out: w.Out.At(at.distances), pitchX: uint32(at.strides[0]), pitchY: uint32(at.strides[1])}
	if c.call.Mean {
		sum.mean = 1
	}
	for i, to := range []*driver.Ptr{&sum.nearX, &sum.nearY} {
		if at.near[i] < 0 {
			continue
		}
		*to = w.Out.At(at.near[i])
		if err := rt.Driver.Set(*to, 0xFF, 4*int64(n)*int64(at.strides[i]), rt.Stream); err != nil { // −1
			return err
		}
	}
	if err := runtime.Launch(rt, "dense/dense_chamfer_sum", n, 1, 1, 256, 0, sum); err != nil {
		return err
	}
	if err := rt.Driver.ToHost(w.HostOut[:at.out], w.Out.Ptr, rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	copy(c.call.Distances[lo:], structs[float32](w.HostOut[at.distances:], n))
	for i, list := range at.lists {
		if list != nil {
			copy(list[lo*at.strides[i]:], structs[int32](w.HostOut[at.near[i]:], n*at.strides[i]))
		}
	}
	c.spread(lo, n)
	return nil
}

// spread turns nearest tokens into nearest rows.
func (c *chamfer) spread(lo, n int) {
	if !c.x.holes && !c.y.holes {
		return
	}
	for i := lo; i < lo+n; i++ {
		x, y := c.call.At(i, c.work.Y.Len())
		if list := c.call.NearestX; list != nil {
			spread(&c.x, &c.y, list[i*c.work.StrideX:(i+1)*c.work.StrideX], x, y)
		}
		if list := c.call.NearestY; list != nil {
			spread(&c.y, &c.x, list[i*c.work.StrideY:(i+1)*c.work.StrideY], y, x)
		}
	}
}

// chamferGrads is a call under way.
type chamferGrads struct {
	sides
	call  *maxsim.ChamferGradCall
	near  [2][]int32            // of tokens, at places of the pairs
	coefs [2][]float32          // what a distance of a side counts in each pair
	pairs [2][]denseChamferPair // for the gradient of X, and, exchanged, of Y
	first [2][]uint64           // the pairs of each item
	list  [2][]uint32
	owner [2][]uint32 // the item of each row
	// For each row the rows of the other side that it is nearest to, of each pair.
	wonFirst [2][]uint64
	won      [2][][2]uint32
}

// ChamferGradients implements [maxsim.Chamfers]: by pulling, the same bits each time.
func (b *backend) ChamferGradients(ctx context.Context, call *maxsim.ChamferGradCall) error {
	w, err := call.Check()
	if err != nil {
		return err
	}
	s, err := b.sides(call.X, call.Y, w)
	if err != nil || call.DX == nil && call.DY == nil {
		return err
	}
	g := &chamferGrads{sides: s, call: call}
	if err := g.prepare(); err != nil {
		return err
	}
	return b.submit(ctx, "gradients of", g.run)
}

// prepare makes the tables of a call, on the caller's goroutine.
func (g *chamferGrads) prepare() error {
	n, ny := g.work.Pairs, g.work.Y.Len()
	both := g.both()
	given := [2][]int32{g.call.NearestX, g.call.NearestY}
	strides := [2]int{g.work.StrideX, g.work.StrideY}
	for i, s := range both {
		g.coefs[i], g.pairs[i] = make([]float32, n), make([]denseChamferPair, n)
		g.near[i] = given[i]
		if g.x.holes || g.y.holes {
			g.near[i] = make([]int32, len(given[i]))
		}
		g.first[i] = make([]uint64, s.shape.Len()+1)
		g.list[i] = make([]uint32, n)
		for item := range s.shape.Len() {
			for range s.count(item) {
				g.owner[i] = append(g.owner[i], uint32(item))
			}
		}
	}
	for p := range n {
		x, y := g.call.At(p, ny)
		g.first[0][x+1]++
		g.first[1][y+1]++
		pair := g.pair(x, y)
		pair.keyX, pair.keyY = uint64(p*strides[0]), uint64(p*strides[1])
		g.pairs[0][p] = pair
		g.pairs[1][p] = denseChamferPair{x: pair.y, y: pair.x, keyX: pair.keyY, keyY: pair.keyX, xLen: pair.yLen, yLen: pair.xLen}
		items := [2]int{x, y}
		for i := range both {
			list := given[i][p*strides[i] : (p+1)*strides[i]]
			count := 0
			for _, a := range list {
				if a >= 0 {
					count++
				}
			}
			up := 1.0
			if g.call.Upstream != nil {
				up = float64(g.call.Upstream[p])
			}
			if g.call.Mean {
				up /= float64(max(count, 1))
			}
			g.coefs[i][p] = float32(up)
			if !g.x.holes && !g.y.holes {
				continue
			}
			to := g.near[i][p*strides[i] : (p+1)*strides[i]]
			if err := gatherRow(both[i], both[1-i], to, list, items[i], items[1-i], p); err != nil {
				return err
			}
		}
	}
	for i := range both {
		for item := 1; item < len(g.first[i]); item++ {
			g.first[i][item] += g.first[i][item-1]
		}
		at := slices.Clone(g.first[i])
		for p := range n {
			items := [2]int{}
			items[0], items[1] = g.call.At(p, ny)
			g.list[i][at[items[i]]] = uint32(p)
			at[items[i]]++
		}
		g.listWon(i, both[i].rows())
	}
	return nil
}

// listWon sorts what the rows of a side won by these.
func (g *chamferGrads) listWon(side, rows int) {
	first := make([]uint64, rows+1)
	each := func(fn func(row uint64, pair int, from uint32)) {
		for p := range g.pairs[side] {
			pair := &g.pairs[side][p]
			for t, a := range g.near[1-side][pair.keyY : pair.keyY+uint64(pair.yLen)] {
				if a >= 0 {
					fn(pair.x+uint64(a), p, uint32(t))
				}
			}
		}
	}
	n := 0
	each(func(row uint64, _ int, _ uint32) { first[row+1]++; n++ })
	for r := range rows {
		first[r+1] += first[r]
	}
	at, won := slices.Clone(first), make([][2]uint32, n)
	each(func(row uint64, pair int, from uint32) {
		won[at[row]] = [2]uint32{uint32(pair), from}
		at[row]++
	})
	g.wonFirst[side], g.won[side] = first, won
}

func (g *chamferGrads) run(ctx context.Context, rt *runtime.Runtime) error {
	var in tables
	var out, scratch runtime.Arena
	both := g.both()
	lay, err := layBoth(&scratch, both, false)
	if err != nil {
		return err
	}
	wanted := [2]bool{g.call.DX != nil, g.call.DY != nil}
	var near, coefs, pairs, first, list, owner, wonFirst, won, grads [2]int64
	for i := range both {
		near[i], coefs[i], pairs[i] = add(&in, g.near[i]), add(&in, g.coefs[i]), add(&in, g.pairs[i])
		first[i], list[i], owner[i] = add(&in, g.first[i]), add(&in, g.list[i]), add(&in, g.owner[i])
		wonFirst[i], won[i] = add(&in, g.wonFirst[i]), add(&in, g.won[i])
		if wanted[i] {
			grads[i] = out.Take(4 * int64(both[i].rows()) * int64(g.work.X.Dim))
		}
	}
	w := &rt.Work
	if err := w.Reserve(in.Size, out.Size, scratch.Size, 0); err != nil {
		return err
	}
	if g.rows, err = bringBoth(ctx, rt, both, lay); err != nil {
		return err
	}
	in.write(w.HostIn)
	if err := rt.Driver.ToDevice(w.In.Ptr, w.HostIn[:in.Size], rt.Stream); err != nil {
		return err
	}
	name := "dense/dense_chamfer_grad_l2"
	if g.call.Metric == maxsim.L1 {
		name = "dense/dense_chamfer_grad_l1"
	}
	for i := range both {
		if !wanted[i] {
			continue
		}
		x, y := &g.rows[i], &g.rows[1-i]
		p := &denseChamferGradParams{
			x: x.rows, xScale: x.scale, y: y.rows, yScale: y.scale, pairs: w.In.At(pairs[i]), nearX: w.In.At(near[i]),
			coefX: w.In.At(coefs[i]), coefY: w.In.At(coefs[1-i]), pairFirst: w.In.At(first[i]), pairList: w.In.At(list[i]), rowItem: w.In.At(owner[i]), wonFirst: w.In.At(wonFirst[i]), won: w.In.At(won[i]), out: w.Out.At(grads[i]),
			xBytes: uint32(x.rowBytes), yBytes: uint32(y.rowBytes), xFormat: uint32(x.format), yFormat: uint32(y.format), dim: uint32(g.work.X.Dim), rows: uint32(both[i].rows()),
		}
		if err := runtime.Launch(rt, name, runtime.CeilDiv(both[i].rows(), 4), 1, 1, 128, 0, p); err != nil {
			return err
		}
	}
	if err := rt.Driver.ToHost(w.HostOut[:out.Size], w.Out.Ptr, rt.Stream); err != nil {
		return err
	}
	if err := rt.Sync(); err != nil {
		return err
	}
	for i, to := range []*maxsim.Gradient{g.call.DX, g.call.DY} {
		if wanted[i] {
			putGradient(to, both[i].tokens, 0, both[i].shape.Len(), structs[float32](w.HostOut[grads[i]:], both[i].rows()*g.work.X.Dim))
		}
	}
	return nil
}

// gatherRow makes winners from token to token of those of a pair from row to row.
func gatherRow(q, d *side, to, from []int32, query, doc, pair int) error {
	for r := range to {
		to[r] = -1
	}
	for r := range q.count(query) {
		v := from[q.place(query, r)]
		if v >= 0 && d.holes {
			at, ok := d.token(doc, int(v))
			if !ok {
				return fmt.Errorf("%w: row %d wins in pair %d and is masked", kernels.ErrShape, v, pair)
			}
			v = int32(at)
		}
		to[r] = v
	}
	return nil
}
