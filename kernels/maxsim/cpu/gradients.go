package cpu

import (
	"context"
	"math"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/mapped"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// gradients does a call of Gradients, one after another. Every row of a gradient has
// one writer, who pulls what it gets: a piece is some rows of a query for DQ, and a
// document for DD.
type gradients struct {
	b       *backend
	call    *maxsim.GradCall
	work    maxsim.Work
	q, d    *maxsim.Batch
	grouped grouped
	n       int          // pieces of a query
	inverse [2][]float64 // lengths of the rows of q and of d; empty where they are computed when needed
	own     puller
	workers []puller
	pool    parallel.Pool
}

// puller is what one goroutine works with.
type puller struct {
	sums       []float32 // of the rows of an item
	seen       []bool    // rows that got something
	row, other []float32
	squares    [1][8]float64
}

// queryRows is how many rows of a query are a piece.
const queryRows = 16

// Gradients implements [maxsim.Backend].
func (b *backend) Gradients(ctx context.Context, g *maxsim.GradCall) (err error) {
	defer mapped.Recover(&err, debug.SetPanicOnFault(true), asFault)
	w, err := g.Check()
	if err != nil {
		return err
	}
	q, d, err := b.operands(g.Q, g.D)
	if err != nil {
		return err
	}
	x, _ := b.gradients.Get().(*gradients)
	if x == nil {
		x = &gradients{b: b}
	}
	x.call, x.work, x.q, x.d = g, w, q, d
	err = x.run(ctx)
	x.call, x.q, x.d, x.work, x.grouped.pairs = nil, nil, nil, maxsim.Work{}, nil
	b.gradients.Put(x)
	return err
}

func (x *gradients) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	x.inverse = [2][]float64{x.inverse[0][:0], x.inverse[1][:0]}
	if x.call.Normalize {
		for i, b := range []*maxsim.Batch{x.q, x.d} {
			if err := x.inverseNorms(ctx, i, b); err != nil {
				return err
			}
		}
	}
	if g := x.call.DQ; g != nil {
		x.grouped.reset(&x.call.Pairs, x.work, false)
		x.n = max(parallel.Blocks(x.work.Stride, queryRows), 1)
		clearOutside(g, x.q)
		if err := x.pull(ctx, x.q.Len()*x.n); err != nil {
			return err
		}
	}
	if g := x.call.DD; g != nil {
		x.grouped.reset(&x.call.Pairs, x.work, true)
		clearOutside(g, x.d)
		return x.pull(ctx, x.d.Len())
	}
	return nil
}

// inverseNorms computes the inverse lengths of all rows of a side, unless few of them
// are needed.
func (x *gradients) inverseNorms(ctx context.Context, side int, b *maxsim.Batch) error {
	n := b.Tokens.Rows()
	if n > x.work.Pairs*x.work.Stride {
		return nil
	}
	x.inverse[side] = resize(x.inverse[side], n)
	w := &x.own
	for i := range n {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		x.inverse[side][i] = x.inverseNorm(w, x.row(w, &b.Tokens, i))
	}
	return nil
}

// inverseOf is the inverse of the length of a row, without its scale.
func (x *gradients) inverseOf(w *puller, side, i int, row []float32) float64 {
	if list := x.inverse[side]; len(list) > 0 {
		return list[i]
	}
	return x.inverseNorm(w, row)
}

// clearOutside clears the rows of a gradient that belong to no item.
func clearOutside(g *maxsim.Gradient, b *maxsim.Batch) {
	if g.Add {
		return
	}
	last := 0
	for i := range b.Len() {
		lo, hi := b.Span(i)
		clearRows(g, last, lo)
		last = hi
	}
	clearRows(g, last, g.Rows())
}

func clearRows(g *maxsim.Gradient, lo, hi int) {
	if g.Type == maxsim.F32 {
		clear(g.F32[lo*g.Dim : hi*g.Dim])
	} else {
		clear(g.U16[lo*g.Dim : hi*g.Dim])
	}
}

func (x *gradients) pull(ctx context.Context, pieces int) error {
	threads := parallel.Threads(x.call.Threads, pieces)
	for len(x.workers) < threads {
		x.workers = append(x.workers, puller{})
	}
	return x.pool.Run(ctx, pieces, threads, x)
}

// Run does a piece.
func (x *gradients) Run(worker, i int) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := &x.workers[worker]
	if x.grouped.byDoc {
		x.document(w, i)
	} else {
		x.query(w, i/x.n, i%x.n*queryRows)
	}
	return nil
}

// query pulls the gradients of some rows of a query from the tokens that won.
func (x *gradients) query(w *puller, q, first int) {
	lo, hi := x.q.Span(q)
	from := lo + first
	to := min(from+queryRows, hi)
	if from >= to {
		return
	}
	sums := x.begin(w, x.call.DQ, from, to)
	for i := range x.grouped.count(q) {
		p := x.grouped.pair(q, i)
		_, d := x.call.At(p, x.work.D.Len())
		dlo, _ := x.d.Span(d)
		for r := from; r < to; r++ {
			if a := x.call.Argmax[p*x.work.Stride+r-lo]; a >= 0 {
				x.add(w, sums, r-from, p, r, 1, dlo+int(a), r)
			}
		}
	}
	x.end(w, x.call.DQ, x.q, sums, from, to)
}

// document pulls the gradients of the tokens of a document from the query rows that
// they won.
func (x *gradients) document(w *puller, d int) {
	lo, hi := x.d.Span(d)
	if lo == hi {
		return
	}
	sums := x.begin(w, x.call.DD, lo, hi)
	for i := range x.grouped.count(d) {
		p := x.grouped.pair(d, i)
		q, _ := x.call.At(p, x.work.D.Len())
		qlo, qhi := x.q.Span(q)
		for s, a := range x.call.Argmax[p*x.work.Stride:][:qhi-qlo] {
			if a >= 0 {
				x.add(w, sums, int(a), p, qlo+s, 0, qlo+s, lo+int(a))
			}
		}
	}
	x.end(w, x.call.DD, x.d, sums, lo, hi)
}

// begin returns sums, all 0, for the rows from to to: those of the gradient itself,
// where nothing is left to do with them.
func (x *gradients) begin(w *puller, g *maxsim.Gradient, from, to int) []float32 {
	w.seen = resize(w.seen, to-from)
	clear(w.seen)
	var sums []float32
	if x.direct(g) {
		sums = g.F32[from*g.Dim : to*g.Dim]
	} else {
		w.sums = resize(w.sums, (to-from)*g.Dim)
		sums = w.sums
	}
	clear(sums)
	return sums
}

// direct says that sums are the gradient.
func (x *gradients) direct(g *maxsim.Gradient) bool { return g.Type == maxsim.F32 && !g.Add }

// add adds to row i of the sums what pair p gives it: row src of a side, for row dst of
// the other. weighed is the query row whose weight counts.
func (x *gradients) add(w *puller, sums []float32, i, p, weighed, side, src, dst int) {
	b, other := x.d, x.q
	if side == 0 {
		b, other = other, b
	}
	m := &b.Tokens
	c := 1.0
	if x.call.Upstream != nil {
		c = float64(x.call.Upstream[p])
	}
	if x.call.Weights != nil {
		c *= float64(x.call.Weights[weighed])
	}
	row := x.row(w, m, src)
	if x.call.Normalize {
		// The derivative by x is (g − ⟨g, x̂⟩ x̂) / |x|; the division is done here.
		c *= sign(m.Scale(src)) * x.inverseOf(w, side, src, row) * x.inverseLength(w, 1-side, &other.Tokens, dst)
	} else if m.Scales != nil {
		c *= float64(m.Scales[src])
	}
	w.seen[i] = true
	x.b.tier.Vectors.AddScaled(sums[i*m.Dim:(i+1)*m.Dim], row, float32(c))
}

// inverseLength is the inverse of the length of a row, its scale included; that of 0
// is 0.
func (x *gradients) inverseLength(w *puller, side int, m *maxsim.Matrix, i int) float64 {
	scale := math.Abs(float64(m.Scale(i)))
	if scale == 0 {
		return 0
	}
	if list := x.inverse[side]; len(list) > 0 {
		return list[i] / scale
	}
	if m.Type == maxsim.F32 {
		return x.inverseNorm(w, m.F32[i*m.Dim:(i+1)*m.Dim]) / scale
	}
	w.other = resize(w.other, m.Dim)
	widen(x.b.tier, m, w.other, i, i+1)
	return x.inverseNorm(w, w.other) / scale
}

// row is a row as float32, without its scale.
func (x *gradients) row(w *puller, m *maxsim.Matrix, i int) []float32 {
	if m.Type == maxsim.F32 {
		return m.F32[i*m.Dim : (i+1)*m.Dim]
	}
	w.row = resize(w.row, m.Dim)
	widen(x.b.tier, m, w.row, i, i+1)
	return w.row
}

func (x *gradients) inverseNorm(w *puller, row []float32) float64 {
	x.b.tier.Vectors.Squares(w.squares[:], row, len(row))
	if s := squared(&w.squares[0], row); s > 0 {
		return 1 / math.Sqrt(s)
	}
	return 0
}

// end brings sums through the division by the norm, and puts them where they belong.
func (x *gradients) end(w *puller, g *maxsim.Gradient, b *maxsim.Batch, sums []float32, from, to int) {
	if x.direct(g) && !x.call.Normalize {
		return
	}
	side := 0
	if x.grouped.byDoc {
		side = 1
	}
	for i := range to - from {
		sum := sums[i*g.Dim : (i+1)*g.Dim]
		if !w.seen[i] {
			if !g.Add {
				clearRows(g, from+i, from+i+1)
			}
			continue
		}
		if x.call.Normalize {
			row := x.row(w, &b.Tokens, from+i)
			inverse := x.inverseOf(w, side, from+i, row)
			x.b.tier.Vectors.AddScaled(sum, row, float32(-dot(sum, row)*inverse*inverse))
		}
		if !x.direct(g) {
			g.Put(from+i, sum)
		}
	}
}

// dot is a product in float64.
func dot(x, y []float32) float64 {
	var s [4]float64
	y = y[:len(x)]
	for ; len(x) >= 4; x, y = x[4:], y[4:] {
		s[0] += float64(x[0]) * float64(y[0])
		s[1] += float64(x[1]) * float64(y[1])
		s[2] += float64(x[2]) * float64(y[2])
		s[3] += float64(x[3]) * float64(y[3])
	}
	for j, v := range x {
		s[j] += float64(v) * float64(y[j])
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}
