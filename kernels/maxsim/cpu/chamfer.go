package cpu

import (
	"context"
	"math"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// chamfer executes calls of Chamfer, one after another.
//
// By squared L2, the row y nearest to x has the largest 2⟨x, y⟩ − |y|² = ⟨(x, 1), (2y,
// −|y|²)⟩. So the maxima of scores of vectors with one more dimension find it. The
// distances are then computed from the rows themselves, so that small ones lose no digits.
type chamfer struct {
	backend     *backend
	call        *maxsim.ChamferCall
	work        maxsim.ChamferWork
	x, y        *maxsim.Batch
	values      [2][]float32 // of x and of y, as float32
	buffers     [2][]float32 // memory of values that are converted
	centres     [][]float32  // of each pair, or one for all. nil means 0
	extendedX   []float32    // (x, 1), relative to the centre
	extendedY   []float32    // (2y, −|y|²), relative to the centre
	scores      []float32
	nearestRows [2][]int32 // as ChamferCall.NearestX and NearestY
	pairItems   [2][]int32 // items x and y of each pair
	pool        parallel.Pool
}

// Chamfer implements [maxsim.ChamferScorer].
func (b *backend) Chamfer(ctx context.Context, call *maxsim.ChamferCall) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), faultError)
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
	c.values, c.nearestRows = [2][]float32{}, [2][]int32{} // these may be the caller's memory
	clear(c.centres)
	b.chamfers.Put(c)
	return err
}

// run finds the nearest rows, by squared L2 for all pairs at once, and adds up the distances
// of each pair.
func (c *chamfer) run(ctx context.Context) error {
	n := c.work.Pairs
	for i, b := range []*maxsim.Batch{c.x, c.y} {
		c.values[i] = floatValues(c.backend, &c.buffers[i], b)
	}
	c.nearestRows[0], c.nearestRows[1] = c.call.NearestX, c.call.NearestY
	if c.nearestRows[0] == nil {
		c.nearestRows[0] = make([]int32, n*c.work.StrideX)
	}
	if c.nearestRows[1] == nil {
		c.nearestRows[1] = make([]int32, n*c.work.StrideY)
	}
	if c.call.Metric == maxsim.SquaredL2 {
		for i := range c.pairItems {
			c.pairItems[i] = resize(c.pairItems[i], n)
		}
		for p := range n {
			x, y := c.call.PairAt(p, c.work.Y.Len())
			c.pairItems[0][p], c.pairItems[1][p] = int32(x), int32(y)
		}
		c.chooseCentres()
		if err := c.findNearestL2(ctx, 0, c.x, c.y); err != nil {
			return err
		}
		if err := c.findNearestL2(ctx, 1, c.y, c.x); err != nil {
			return err
		}
	}
	return c.pool.Run(ctx, n, c.call.Threads, c)
}

// floatValues returns the values of a batch as float32, times their scales: its own memory
// if it is float32, or else the buffer, which it resizes.
func floatValues(b *backend, buffer *[]float32, batch *maxsim.Batch) []float32 {
	m := &batch.Tokens
	if m.Type == maxsim.F32 {
		return m.F32
	}
	*buffer = resize(*buffer, m.Rows()*m.Dim)
	dst := *buffer
	widenRows(b.tier, m, dst, 0, m.Rows())
	if m.Scales != nil {
		for i := range dst {
			dst[i] *= m.Scales[i/m.Dim]
		}
	}
	return dst
}

// findNearestL2 finds, for each row of x, the nearest row of y by squared L2. side is 0 if x
// is the X of the call, and 1 if it is the Y.
func (c *chamfer) findNearestL2(ctx context.Context, side int, x, y *maxsim.Batch) error {
	// 1. The vectors with one more dimension, relative to the centre.
	dim := x.Tokens.Dim
	xs, ys := c.values[side], c.values[1-side]
	c.extendedX = resize(c.extendedX, x.Tokens.Rows()*(dim+1))
	c.extendedY = resize(c.extendedY, y.Tokens.Rows()*(dim+1))
	for i := range x.Len() {
		centre := c.centres[min(i, len(c.centres)-1)]
		for r, hi := x.Span(i); r < hi; r++ {
			row := c.extendedX[r*(dim+1) : (r+1)*(dim+1)]
			fromCentre(row[:dim], xs[r*dim:], centre)
			row[dim] = 1
		}
	}
	for i := range y.Len() {
		centre := c.centres[min(i, len(c.centres)-1)]
		for r, hi := y.Span(i); r < hi; r++ {
			row := c.extendedY[r*(dim+1) : (r+1)*(dim+1)]
			fromCentre(row[:dim], ys[r*dim:], centre)
			var square float64
			for j, v := range row[:dim] {
				row[j] = 2 * v
				square += float64(v) * float64(v)
			}
			row[dim] = float32(-square)
		}
	}
	// 2. The argmaxima of their scores.
	c.scores = resize(c.scores, c.work.Pairs)
	q := &maxsim.Batch{Tokens: maxsim.Float32(c.extendedX, dim+1), Layout: x.Layout}
	d := &maxsim.Batch{Tokens: maxsim.Float32(c.extendedY, dim+1), Layout: y.Layout}
	return c.backend.scoreChecked(ctx, &maxsim.Call{
		Q: q, D: d, Pairs: maxsim.Listed(c.pairItems[side], c.pairItems[1-side]),
		Terms: maxsim.Terms{Threads: c.call.Threads}, Scores: c.scores, Argmax: c.nearestRows[side],
	}, maxsim.Work{Q: q.Shape(), D: d.Shape(), Pairs: c.work.Pairs, Stride: q.MaxRows()}, q, d, nil)
}

// Run adds up the distances of a pair.
func (c *chamfer) Run(_, p int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	x, y := c.call.PairAt(p, c.work.Y.Len())
	c.call.Distances[p] = float32(c.directedDistance(p, 0, c.x, c.y, x, y) + c.directedDistance(p, 1, c.y, c.x, y, x))
	return nil
}

// chooseCentres chooses the points that are subtracted from all others, so that 2⟨x, y⟩ −
// |y|² loses few digits where all points are far from 0. A centre is the first point of Y:
// of each pair if every item has one pair, or else of the first item for all. It is used
// only if it halves the largest value.
func (c *chamfer) chooseCentres() {
	// The number of centres: one for each pair only if pair p is item p with item p.
	n := max(c.work.Pairs, 1)
	if c.x.Len() != n || c.y.Len() != n {
		n = 1
	}
	for p := range c.work.Pairs {
		if int(c.pairItems[0][p]) != p || int(c.pairItems[1][p]) != p {
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
		first, largestY := c.firstAndLargest(1, c.y, ys, nil)
		_, largestX := c.firstAndLargest(0, c.x, xs, nil)
		_, movedY := c.firstAndLargest(1, c.y, ys, first)
		_, movedX := c.firstAndLargest(0, c.x, xs, first)
		c.centres[i] = nil
		if max(movedY, movedX) < max(largestY, largestX)/2 {
			c.centres[i] = first
		}
	}
}

// firstAndLargest returns the first token of the items [lo, hi), and the largest magnitude of
// their values relative to a centre. nil means 0.
func (c *chamfer) firstAndLargest(
	side int, b *maxsim.Batch, items [2]int, centre []float32,
) (first []float32, largest float32) {
	for i := items[0]; i < items[1]; i++ {
		for r, hi := b.Span(i); r < hi; r++ {
			if !b.IsToken(r) {
				continue
			}
			row := c.rowValues(side, r)
			if first == nil {
				first = row
			}
			if centre == nil {
				for _, v := range row {
					largest = max(largest, abs(v))
				}
				continue
			}
			for j, v := range row {
				largest = max(largest, abs(v-centre[j]))
			}
		}
	}
	return first, largest
}

// fromCentre writes point − centre; a nil centre means 0.
func fromCentre(dst, point, centre []float32) {
	copy(dst, point)
	for j, v := range centre {
		dst[j] -= v
	}
}

// directedDistance returns the sum, or the mean, of the distances from the rows of item x to the
// nearest rows of item y, for pair p. By L1 it finds these first.
func (c *chamfer) directedDistance(p, side int, xb, yb *maxsim.Batch, x, y int) float64 {
	stride := c.work.StrideX
	if side == 1 {
		stride = c.work.StrideY
	}
	nearest := c.nearestRows[side][p*stride : (p+1)*stride]
	xlo, xhi := xb.Span(x)
	ylo, yhi := yb.Span(y)
	if c.call.Metric == maxsim.L1 {
		for s := range nearest {
			nearest[s] = -1
			if s < xhi-xlo && xb.IsToken(xlo+s) {
				nearest[s] = c.nearestL1(side, xlo+s, yb, ylo, yhi)
			}
		}
	}
	var sum float64
	n := 0
	for s, a := range nearest {
		if a < 0 {
			continue
		}
		sum += maxsim.Distance(c.call.Metric, c.rowValues(side, xlo+s), c.rowValues(1-side, ylo+int(a)))
		n++
	}
	if c.call.Mean && n > 0 {
		sum /= float64(n)
	}
	return sum
}

// rowValues returns row i of a side.
func (c *chamfer) rowValues(side, i int) []float32 {
	dim := c.x.Tokens.Dim
	return c.values[side][i*dim : (i+1)*dim]
}

// nearestL1 returns the token of the rows lo to hi of b, counted from lo, that is nearest to
// a row of a side; −1 if none of them is a token.
func (c *chamfer) nearestL1(side, row int, b *maxsim.Batch, lo, hi int) int32 {
	x, best, nearest := c.rowValues(side, row), float32(math.Inf(1)), int32(-1)
	for t := lo; t < hi; t++ {
		if !b.IsToken(t) {
			continue
		}
		var sums [4]float32
		y := c.rowValues(1-side, t)
		for j, v := range x {
			sums[j&3] += abs(v - y[j])
		}
		if d := (sums[0] + sums[1]) + (sums[2] + sums[3]); d < best || nearest < 0 {
			best, nearest = d, int32(t-lo)
		}
	}
	return nearest
}

// abs returns |v|.
func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// chamferGradients executes a call of ChamferGradients. Each row of a gradient is summed by
// one goroutine, pair by pair: first the derivative of its own distance, then those of the
// rows that it is nearest to.
type chamferGradients struct {
	c       chamfer // has the values
	call    *maxsim.ChamferGradCall
	work    maxsim.ChamferWork
	grouped pairGroups
	side    int         // of the gradient: 0 for DX, 1 for DY
	sums    [][]float32 // of each goroutine
	pool    parallel.Pool
}

// ChamferGradients implements [maxsim.ChamferScorer].
func (b *backend) ChamferGradients(ctx context.Context, call *maxsim.ChamferGradCall) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), faultError)
	w, err := call.Check()
	if err != nil {
		return err
	}
	x, y, err := b.operands(call.X, call.Y)
	if err != nil {
		return err
	}
	g := &chamferGradients{c: chamfer{backend: b, x: x, y: y}, call: call, work: w}
	g.c.values = [2][]float32{floatValues(b, &g.c.buffers[0], x), floatValues(b, &g.c.buffers[1], y)}
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

// Run computes the gradient of all rows of an item.
func (g *chamferGradients) Run(worker, item int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	// Of the two lists of nearest rows, mine belongs to the rows of this side, theirs to the
	// rows of the other one.
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
	for i := range g.grouped.pairCount(item) {
		p := g.grouped.pairOfItem(item, i)
		x, y := g.call.PairAt(p, g.work.Y.Len())
		if g.side == 1 {
			y = x
		}
		otherLo, _ := other.Span(y)
		up := 1.0
		if g.call.Upstream != nil {
			up = float64(g.call.Upstream[p])
		}
		list := mine[p*mineStride : (p+1)*mineStride]
		c := g.distanceWeight(up, list)
		for s, a := range list {
			if a >= 0 {
				g.addDerivative(sums[s*dim:(s+1)*dim], c, lo+s, otherLo+int(a))
			}
		}
		list = theirs[p*theirStride : (p+1)*theirStride]
		c = g.distanceWeight(up, list)
		for t, a := range list {
			if a >= 0 {
				g.addDerivative(sums[int(a)*dim:(int(a)+1)*dim], c, lo+int(a), otherLo+t)
			}
		}
	}
	for r := lo; r < hi; r++ {
		out.Put(r, sums[(r-lo)*dim:(r-lo+1)*dim])
	}
	return nil
}

// distanceWeight returns the factor of each distance of a list: upstream, divided by the
// number of distances for a mean.
func (g *chamferGradients) distanceWeight(up float64, list []int32) float64 {
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

// addDerivative adds c times the derivative of the distance of two rows by the first one.
func (g *chamferGradients) addDerivative(dst []float32, c float64, row, other int) {
	x, y := g.c.rowValues(g.side, row), g.c.rowValues(1-g.side, other)
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
