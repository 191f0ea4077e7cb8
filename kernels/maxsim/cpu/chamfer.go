package cpu

import (
	"context"
	"math"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// chamfer does a call of Chamfer, one after another.
//
// The nearest row by squared L2 is the one with the largest 2⟨x, y⟩ − |y|², a product
// of one dimension more: it comes from the maxima of scores. Distances are then
// computed from the rows themselves, so that near ones lose no digits.
type chamfer struct {
	backend *backend
	call    *maxsim.ChamferCall
	work    maxsim.ChamferWork
	x, y    *maxsim.Batch
	wide    [2][]float32 // the values of x and of y
	own     [2][]float32 // room for those that are not float32
	centres [][]float32  // of the pairs, or of all; nil means 0
	left    []float32    // (x, 1), from the centre
	right   []float32    // (2y, −|y|²), from the centre
	scores  []float32
	near    [2][]int32
	lists   [2][]int32 // x and y of the pairs
	pool    parallel.Pool
}

// Chamfer implements [maxsim.Chamfers].
func (b *backend) Chamfer(ctx context.Context, call *maxsim.ChamferCall) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), asFault)
	w, err := call.Check()
	if err != nil {
		return err
	}
	x, y, err := b.operands(call.X, call.Y)
	if err != nil {
		return err
	}
	c, _ := b.chamfers.Get().(*chamfer)
	if c == nil {
		c = &chamfer{backend: b}
	}
	c.call, c.work, c.x, c.y = call, w, x, y
	err = c.run(ctx)
	c.call, c.x, c.y, c.work = nil, nil, nil, maxsim.ChamferWork{}
	c.wide, c.near = [2][]float32{}, [2][]int32{} // which may be the caller's
	clear(c.centres)
	b.chamfers.Put(c)
	return err
}

func (c *chamfer) run(ctx context.Context) error {
	n := c.work.Pairs
	for i, b := range []*maxsim.Batch{c.x, c.y} {
		c.wide[i] = values(c.backend, &c.own[i], b)
	}
	c.near[0], c.near[1] = c.call.NearestX, c.call.NearestY
	if c.near[0] == nil {
		c.near[0] = make([]int32, n*c.work.StrideX)
	}
	if c.near[1] == nil {
		c.near[1] = make([]int32, n*c.work.StrideY)
	}
	if c.call.Metric == maxsim.SquaredL2 {
		for i := range c.lists {
			c.lists[i] = resize(c.lists[i], n)
		}
		for p := range n {
			x, y := c.call.At(p, c.work.Y.Len())
			c.lists[0][p], c.lists[1][p] = int32(x), int32(y)
		}
		c.centre()
		if err := c.nearest(ctx, 0, c.x, c.y); err != nil {
			return err
		}
		if err := c.nearest(ctx, 1, c.y, c.x); err != nil {
			return err
		}
	}
	return c.pool.Run(ctx, n, c.call.Threads, c)
}

// values are the values of a batch as float32, their scales applied: in room, unless they
// are that already.
func values(b *backend, room *[]float32, batch *maxsim.Batch) []float32 {
	m := &batch.Tokens
	if m.Type == maxsim.F32 {
		return m.F32
	}
	*room = resize(*room, m.Rows()*m.Dim)
	dst := *room
	widen(b.tier, m, dst, 0, m.Rows())
	if m.Scales != nil {
		for i := range dst {
			dst[i] *= m.Scales[i/m.Dim]
		}
	}
	return dst
}

// nearest finds the nearest rows by squared L2 for one side.
func (c *chamfer) nearest(ctx context.Context, side int, x, y *maxsim.Batch) error {
	dim := x.Tokens.Dim
	xs, ys := c.wide[side], c.wide[1-side]
	c.left, c.right = resize(c.left, x.Tokens.Rows()*(dim+1)), resize(c.right, y.Tokens.Rows()*(dim+1))
	for i := range x.Len() {
		centre := c.centres[min(i, len(c.centres)-1)]
		for r, hi := x.Span(i); r < hi; r++ {
			row := c.left[r*(dim+1) : (r+1)*(dim+1)]
			fromCentre(row[:dim], xs[r*dim:], centre)
			row[dim] = 1
		}
	}
	for i := range y.Len() {
		centre := c.centres[min(i, len(c.centres)-1)]
		for r, hi := y.Span(i); r < hi; r++ {
			row := c.right[r*(dim+1) : (r+1)*(dim+1)]
			fromCentre(row[:dim], ys[r*dim:], centre)
			var square float64
			for j, v := range row[:dim] {
				row[j] = 2 * v
				square += float64(v) * float64(v)
			}
			row[dim] = float32(-square)
		}
	}
	c.scores = resize(c.scores, c.work.Pairs)
	q := &maxsim.Batch{Tokens: maxsim.Float32(c.left, dim+1), Layout: x.Layout}
	d := &maxsim.Batch{Tokens: maxsim.Float32(c.right, dim+1), Layout: y.Layout}
	return c.backend.score(ctx, &maxsim.Call{
		Q: q, D: d, Pairs: maxsim.Listed(c.lists[side], c.lists[1-side]),
		Terms: maxsim.Terms{Threads: c.call.Threads}, Scores: c.scores, Argmax: c.near[side],
	}, maxsim.Work{Q: q.Shape(), D: d.Shape(), Pairs: c.work.Pairs, Stride: q.MaxRows()}, q, d, nil)
}

// Run adds up the distances of a pair.
func (c *chamfer) Run(_, p int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	x, y := c.call.At(p, c.work.Y.Len())
	c.call.Distances[p] = float32(c.side(p, 0, c.x, c.y, x, y) + c.side(p, 1, c.y, c.x, y, x))
	return nil
}

// centre finds what points are counted from where all of them are far from 0, so that
// cancellation takes few digits: the first point of Y, of each pair if no item has two. It
// is no centre where that leaves the largest value what it is, but for half.
func (c *chamfer) centre() {
	n := max(c.work.Pairs, 1)
	if c.x.Len() != n || c.y.Len() != n {
		n = 1
	}
	for p := range c.work.Pairs {
		if int(c.lists[0][p]) != p || int(c.lists[1][p]) != p {
			n = 1
			break
		}
	}
	c.centres = resize(c.centres, n)
	for i := range c.centres {
		xs, ys := [2]int{i, i + 1}, [2]int{i, i + 1}
		if n == 1 {
			xs, ys = [2]int{0, c.x.Len()}, [2]int{0, c.y.Len()}
		}
		first, most := c.largest(1, c.y, ys, nil)
		_, mostX := c.largest(0, c.x, xs, nil)
		_, far := c.largest(1, c.y, ys, first)
		_, farX := c.largest(0, c.x, xs, first)
		c.centres[i] = nil
		if max(far, farX) < max(most, mostX)/2 {
			c.centres[i] = first
		}
	}
}

// largest is the first token of some items, and the largest value of all of them, counted
// from a centre.
func (c *chamfer) largest(side int, b *maxsim.Batch, items [2]int, centre []float32) (first []float32, most float32) {
	for i := items[0]; i < items[1]; i++ {
		for r, hi := b.Span(i); r < hi; r++ {
			if !b.IsToken(r) {
				continue
			}
			row := c.row(side, r)
			if first == nil {
				first = row
			}
			if centre == nil {
				for _, v := range row {
					most = max(most, abs(v))
				}
				continue
			}
			for j, v := range row {
				most = max(most, abs(v-centre[j]))
			}
		}
	}
	return first, most
}

// fromCentre writes a point as it is seen from a centre.
func fromCentre(dst, point, centre []float32) {
	copy(dst, point)
	for j, v := range centre {
		dst[j] -= v
	}
}

func (c *chamfer) side(p, side int, xb, yb *maxsim.Batch, x, y int) float64 {
	stride := c.work.StrideX
	if side == 1 {
		stride = c.work.StrideY
	}
	near := c.near[side][p*stride : (p+1)*stride]
	xlo, xhi := xb.Span(x)
	ylo, yhi := yb.Span(y)
	if c.call.Metric == maxsim.L1 {
		for s := range near {
			near[s] = -1
			if s < xhi-xlo && xb.IsToken(xlo+s) {
				near[s] = c.nearestL1(side, xlo+s, yb, ylo, yhi)
			}
		}
	}
	var sum float64
	n := 0
	for s, a := range near {
		if a < 0 {
			continue
		}
		sum += maxsim.Distance(c.call.Metric, c.row(side, xlo+s), c.row(1-side, ylo+int(a)))
		n++
	}
	if c.call.Mean && n > 0 {
		sum /= float64(n)
	}
	return sum
}

func (c *chamfer) row(side, i int) []float32 {
	dim := c.x.Tokens.Dim
	return c.wide[side][i*dim : (i+1)*dim]
}

// nearestL1 is the token of the rows lo to hi that is nearest to a row of a side.
func (c *chamfer) nearestL1(side, row int, b *maxsim.Batch, lo, hi int) int32 {
	x, best, nearest := c.row(side, row), float32(math.Inf(1)), int32(-1)
	for t := lo; t < hi; t++ {
		if !b.IsToken(t) {
			continue
		}
		var sums [4]float32
		y := c.row(1-side, t)
		for j, v := range x {
			sums[j&3] += abs(v - y[j])
		}
		if d := (sums[0] + sums[1]) + (sums[2] + sums[3]); d < best || nearest < 0 {
			best, nearest = d, int32(t-lo)
		}
	}
	return nearest
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// chamferGradients does a call of ChamferGradients: each row of a gradient pulls what it
// gets, in the order of the pairs, for the rows that it is nearest to after those that
// are nearest to it.
type chamferGradients struct {
	c       chamfer // for the values
	call    *maxsim.ChamferGradCall
	work    maxsim.ChamferWork
	grouped grouped
	side    int
	sums    [][]float32 // of each goroutine
	pool    parallel.Pool
}

// ChamferGradients implements [maxsim.Chamfers].
func (b *backend) ChamferGradients(ctx context.Context, call *maxsim.ChamferGradCall) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), asFault)
	w, err := call.Check()
	if err != nil {
		return err
	}
	x, y, err := b.operands(call.X, call.Y)
	if err != nil {
		return err
	}
	g := &chamferGradients{c: chamfer{backend: b, x: x, y: y}, call: call, work: w}
	g.c.wide = [2][]float32{values(b, &g.c.own[0], x), values(b, &g.c.own[1], y)}
	for side, out := range []*maxsim.Gradient{call.DX, call.DY} {
		if out == nil {
			continue
		}
		batch := x
		if side == 1 {
			batch = y
		}
		g.side = side
		g.grouped.reset(&call.Pairs, maxsim.Work{Q: w.X, D: w.Y, Pairs: w.Pairs}, side == 1)
		clearOutside(out, batch)
		threads := parallel.Threads(call.Threads, batch.Len())
		g.sums = resize(g.sums, threads)
		if err := g.pool.Run(ctx, batch.Len(), threads, g); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Run pulls the gradient of an item.
func (g *chamferGradients) Run(worker, item int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	out, batch, other := g.call.DX, g.c.x, g.c.y
	mine, mineStride, theirs, theirStride := g.call.NearestX, g.work.StrideX, g.call.NearestY, g.work.StrideY
	if g.side == 1 {
		out, batch, other = g.call.DY, other, batch
		mine, mineStride, theirs, theirStride = theirs, theirStride, mine, mineStride
	}
	lo, hi := batch.Span(item)
	dim := batch.Tokens.Dim
	sums := resize(g.sums[worker], (hi-lo)*dim)
	g.sums[worker] = sums
	clear(sums)
	for i := range g.grouped.count(item) {
		p := g.grouped.pair(item, i)
		x, y := g.call.At(p, g.work.Y.Len())
		if g.side == 1 {
			y = x
		}
		otherLo, _ := other.Span(y)
		up := 1.0
		if g.call.Upstream != nil {
			up = float64(g.call.Upstream[p])
		}
		list := mine[p*mineStride : (p+1)*mineStride]
		c := g.weight(up, list)
		for s, a := range list {
			if a >= 0 {
				g.add(sums[s*dim:(s+1)*dim], c, lo+s, otherLo+int(a))
			}
		}
		list = theirs[p*theirStride : (p+1)*theirStride]
		c = g.weight(up, list)
		for t, a := range list {
			if a >= 0 {
				g.add(sums[int(a)*dim:(int(a)+1)*dim], c, lo+int(a), otherLo+t)
			}
		}
	}
	for r := lo; r < hi; r++ {
		out.Put(r, sums[(r-lo)*dim:(r-lo+1)*dim])
	}
	return nil
}

// weight is what a distance of a list counts.
func (g *chamferGradients) weight(up float64, list []int32) float64 {
	if !g.call.Mean {
		return up
	}
	n := 0
	for _, a := range list {
		if a >= 0 {
			n++
		}
	}
	return up / float64(max(n, 1))
}

// add adds c times the derivative of the distance of two rows by the first.
func (g *chamferGradients) add(dst []float32, c float64, row, other int) {
	x, y := g.c.row(g.side, row), g.c.row(1-g.side, other)
	for j, v := range x {
		d := float64(v) - float64(y[j])
		switch {
		case g.call.Metric == maxsim.SquaredL2:
			d *= 2
		case d > 0:
			d = 1
		case d < 0:
			d = -1
		}
		dst[j] += float32(c * d)
	}
}
