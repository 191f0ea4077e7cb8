package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// puller is what one goroutine works with.
type puller struct {
	sums       []float32 // of the rows of a piece
	row, other []float32
	squares    [1][8]float64
	counts     []int32   // what each row gets, and then where the list of it ends
	inverse    []float64 // lengths of the rows
	sources    []uint32  // rows of the other side that add to one row, and then the next
	factors    []float32 // what they count times
}

// queryPairs is how many pairs are added at a time, so that their documents stay in the
// cache while all rows of a piece look at them.
const queryPairs = 8

// pullQueryRows pulls the gradients of some rows of a query from the tokens that won.
func (x *gradients) pullQueryRows(w *puller, q, first int) {
	lo, hi := x.q.Span(q)
	from := lo + first
	to := min(from+x.queryPieceRows, hi)
	if from >= to {
		return
	}
	sums := x.startSums(w, x.call.DQ, from, to)
	clear(sums)
	for r := from; r < to && x.call.Normalize; r++ {
		w.inverse[r-from] = earlyFactor(x.inverseLength(w, 0, r))
	}
	n := x.grouped.pairCount(q)
	for i := 0; i < n; i += queryPairs {
		for r := from; r < to; r++ {
			w.sources, w.factors = w.sources[:0], w.factors[:0]
			for j := i; j < min(i+queryPairs, n); j++ {
				p := x.grouped.pairOfItem(q, j)
				a := x.call.Argmax[p*x.work.Stride+r-lo]
				if a < 0 {
					continue
				}
				_, d := x.call.At(p, x.work.D.Len())
				dlo, _ := x.d.Span(d)
				w.sources = append(w.sources, uint32(dlo+int(a)))
				w.factors = append(w.factors, x.sourceFactor(w, p, r, 1, dlo+int(a), w.inverse[r-from]))
			}
			w.counts[r-from] += int32(len(w.sources))
			x.addRows(w, sums[(r-from)*x.d.Tokens.Dim:(r-from+1)*x.d.Tokens.Dim], &x.d.Tokens, w.sources, w.factors)
		}
	}
	x.finishSums(w, x.call.DQ, x.q, 0, sums, from, to)
}

// pullTokenRows pulls the gradients of some tokens of a document from the query rows that they
// won, which are sorted by token first.
func (x *gradients) pullTokenRows(w *puller, p piece) {
	lo, _ := x.d.Span(int(p.item))
	from, to := lo+int(p.from), lo+int(p.to)
	if from == to {
		return
	}
	sums := x.startSums(w, x.call.DD, from, to)
	x.visitWinners(p, func(_, _ int, token int32) { w.counts[token]++ })
	x.clearSums(w, x.call.DD, sums)
	total := int32(0)
	for i, n := range w.counts {
		if n > 0 && x.call.Normalize {
			w.inverse[i] = earlyFactor(x.inverseLength(w, 1, from+i))
		}
		w.counts[i], total = total, total+n
	}
	w.sources, w.factors = resize(w.sources, int(total)), resize(w.factors, int(total))
	x.visitWinners(p, func(pair, row int, token int32) {
		slot := w.counts[token]
		w.counts[token]++
		w.sources[slot], w.factors[slot] = uint32(row), x.sourceFactor(w, pair, row, 0, row, w.inverse[token])
	})
	dim, start := x.q.Tokens.Dim, int32(0)
	for i, end := range w.counts {
		if end > start {
			x.addRows(w, sums[i*dim:(i+1)*dim], &x.q.Tokens, w.sources[start:end], w.factors[start:end])
		}
		w.counts[i], start = end-start, end
	}
	x.finishSums(w, x.call.DD, x.d, 1, sums, from, to)
}

// visitWinners calls f with what won each of the tokens of a piece, counted from its first:
// the pair and the row of the query, in their order.
func (x *gradients) visitWinners(p piece, visit func(pair, row int, token int32)) {
	d := int(p.item)
	for i := range x.grouped.pairCount(d) {
		pair := x.grouped.pairOfItem(d, i)
		q, _ := x.call.At(pair, x.work.D.Len())
		lo, hi := x.q.Span(q)
		for s, a := range x.call.Argmax[pair*x.work.Stride:][:hi-lo] {
			if a >= p.from && a < p.to {
				visit(pair, lo+s, a-p.from)
			}
		}
	}
}

// clearSums clears sums. Of the gradient itself it clears what gets nothing past the cache:
// that is most of it where a query meets many documents.
func (x *gradients) clearSums(w *puller, g *maxsim.Gradient, sums []float32) {
	const minLongGap = 8 // rows that are not worth while
	if !x.sumsInPlace(g) {
		clear(sums)
		return
	}
	for i := 0; i < len(w.counts); {
		from := i
		for i < len(w.counts) && w.counts[i] == 0 {
			i++
		}
		if none := sums[from*g.Dim : i*g.Dim]; i-from > minLongGap {
			x.backend.tier.Vectors.Zero(none)
		} else {
			clear(none)
		}
		for from = i; i < len(w.counts) && w.counts[i] > 0; {
			i++
		}
		clear(sums[from*g.Dim : i*g.Dim])
	}
}

// startSums returns sums for the rows from to to: those of the gradient itself, where nothing
// is left to do with them.
func (x *gradients) startSums(w *puller, g *maxsim.Gradient, from, to int) []float32 {
	w.counts, w.inverse = resize(w.counts, to-from), resize(w.inverse, to-from)
	clear(w.counts)
	var sums []float32
	if x.sumsInPlace(g) {
		sums = g.F32[from*g.Dim : to*g.Dim]
	} else {
		w.sums = resize(w.sums, (to-from)*g.Dim)
		sums = w.sums
	}
	return sums
}

// sumsInPlace says that sums are the gradient.
func (x *gradients) sumsInPlace(g *maxsim.Gradient) bool { return g.Type == maxsim.F32 && !g.Add }

// sourceFactor is what row src of a side counts times where it adds to a row with an inverse
// length for pair p. weighed is the query row whose weight counts.
func (x *gradients) sourceFactor(w *puller, p, weighed, side, src int, inverse float64) float32 {
	c := 1.0
	if x.call.Upstream != nil {
		c = float64(x.call.Upstream[p])
	}
	if x.call.Weights != nil {
		c *= float64(x.call.Weights[weighed])
	}
	m := x.matrixOf(side)
	if x.call.Normalize {
		// The derivative by x is (g − ⟨g, x̂⟩ x̂) / |x|; the division is done here.
		c *= sign(m.Scale(src)) * x.inverseOf(w, side, src) * inverse
	} else if m.Scales != nil {
		c *= float64(m.Scales[src])
	}
	return float32(c)
}

func (x *gradients) matrixOf(i int) *maxsim.Matrix {
	if i == 0 {
		return &x.q.Tokens
	}
	return &x.d.Tokens
}

// addRows adds rows of a matrix, in their order, to sum.
func (x *gradients) addRows(w *puller, sum []float32, m *maxsim.Matrix, rows []uint32, factors []float32) {
	if m.Type == maxsim.F32 {
		x.backend.tier.Vectors.AddRows(sum, m.F32, rows, factors)
		return
	}
	for i, r := range rows {
		x.backend.tier.Vectors.AddScaled(sum, x.floatRow(&w.row, m, int(r)), factors[i])
	}
}

// floatRow is a row as float32, without its scale.
func (x *gradients) floatRow(buf *[]float32, m *maxsim.Matrix, i int) []float32 {
	if m.Type == maxsim.F32 {
		return m.F32[i*m.Dim : (i+1)*m.Dim]
	}
	*buf = resize(*buf, m.Dim)
	widenRows(x.backend.tier, m, *buf, i, i+1)
	return *buf
}

// inverseOf is the inverse of the length of a row, without its scale.
func (x *gradients) inverseOf(w *puller, side, i int) float64 {
	if list := x.inverses[side]; len(list) > 0 {
		return list[i]
	}
	row := x.floatRow(&w.other, x.matrixOf(side), i)
	x.backend.tier.Vectors.Squares(w.squares[:], row, len(row))
	return inverseRoot(sumSquares(&w.squares[0], row))
}

// inverseLength is the inverse of the length of a row, its scale included; that of 0
// is 0.
func (x *gradients) inverseLength(w *puller, side, i int) float64 {
	return x.overScale(side, i, x.inverseOf(w, side, i))
}

// overScale brings the scale of a row into its inverse length.
func (x *gradients) overScale(side, i int, inverse float64) float64 {
	scale := math.Abs(float64(x.matrixOf(side).Scale(i)))
	if scale == 0 {
		return 0
	}
	return inverse / scale
}

// earlyFactor is what factors are multiplied with of the inverse length of the row that they add
// to: all of it, unless it is so far from 1 that float32 may be no good for its product with
// the inverse of another length, of 1e-32 to 1e32. [gradients.finishSums] multiplies with it then.
func earlyFactor(inverse float64) float64 {
	if inverse == 0 || inverse > 1e-6 && inverse < 1e6 {
		return inverse
	}
	return 1
}

// finishSums brings sums through the division by the norm, and puts them where they belong.
func (x *gradients) finishSums(w *puller, g *maxsim.Gradient, b *maxsim.Batch, side int, sums []float32, from, to int) {
	if x.sumsInPlace(g) && !x.call.Normalize {
		return
	}
	for i := range to - from {
		sum := sums[i*g.Dim : (i+1)*g.Dim]
		if w.counts[i] == 0 {
			if !g.Add && !x.sumsInPlace(g) {
				clearRows(g, from+i, from+i+1)
			}
			continue
		}
		if x.call.Normalize {
			inverse := x.inverseOf(w, side, from+i)
			row := x.floatRow(&w.row, &b.Tokens, from+i)
			c := -x.dot(w, sum, row) * inverse * inverse
			if remaining := x.overScale(side, from+i, inverse); earlyFactor(remaining) == remaining {
				x.backend.tier.Vectors.AddScaled(sum, row, float32(c))
			} else {
				for j, v := range row {
					sum[j] = float32(remaining * (float64(sum[j]) + float64(c*float64(v))))
				}
			}
		}
		if !x.sumsInPlace(g) {
			g.Put(from+i, sum)
		}
	}
}

// dot is a product in float64.
func (x *gradients) dot(w *puller, a, b []float32) float64 {
	s := &w.squares[0]
	x.backend.tier.Vectors.Products(s, a, b)
	for j := len(a) &^ 7; j < len(a); j++ {
		s[j&7] += float64(a[j]) * float64(b[j])
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}
