package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// puller is the work space of one goroutine.
type puller struct {
	sums       []float32 // of the rows of a piece
	row, other []float32 // scratch: rows as float32
	squares    [1][8]float64
	counts     []int32   // number of sources of each row; while documents are sorted, the end of its list
	inverse    []float64 // earlyFactor of the inverse length of each row
	sources    []uint32  // rows of the other side that are added to a row
	factors    []float32 // that multiply them
}

// queryPairs is the number of pairs that are added at a time, so that their documents stay
// in the cache while they are added to all rows of a piece.
const queryPairs = 8

// pullQueryRows computes the gradients of the rows of a piece of query q, from row first on,
// from the tokens that won.
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
				_, d := x.call.PairAt(p, x.work.D.Len())
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

// pullTokenRows computes the gradients of the tokens of a piece of a document, from the query
// rows that they won. These are sorted by token first, by a counting sort.
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

// visitWinners calls visit for every query row that a token of a piece won, ordered by pair
// and row. Tokens are counted from the first of the piece.
func (x *gradients) visitWinners(p piece, visit func(pair, row int, token int32)) {
	d := int(p.item)
	for i := range x.grouped.pairCount(d) {
		pair := x.grouped.pairOfItem(d, i)
		q, _ := x.call.PairAt(pair, x.work.D.Len())
		lo, hi := x.q.Span(q)
		for s, a := range x.call.Argmax[pair*x.work.Stride:][:hi-lo] {
			if a >= p.from && a < p.to {
				visit(pair, lo+s, a-p.from)
			}
		}
	}
}

// clearSums clears sums. If these are the gradient itself, it clears long runs of rows that
// nothing is added to without caching them: where a query has many documents, these are most
// rows.
func (x *gradients) clearSums(w *puller, g *maxsim.Gradient, sums []float32) {
	const minLongGap = 8 // rows; shorter runs are cleared as usual
	if !x.sumsInPlace(g) {
		clear(sums)
		return
	}
	for i := 0; i < len(w.counts); {
		from := i
		for i < len(w.counts) && w.counts[i] == 0 {
			i++
		}
		if gap := sums[from*g.Dim : i*g.Dim]; i-from > minLongGap {
			x.backend.tier.Vectors.Zero(gap)
		} else {
			clear(gap)
		}
		for from = i; i < len(w.counts) && w.counts[i] > 0; {
			i++
		}
		clear(sums[from*g.Dim : i*g.Dim])
	}
}

// startSums returns the memory of the sums for the rows from to to: the gradient itself if
// sumsInPlace says so, or else scratch memory. It resets the counts.
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

// sumsInPlace reports whether sums can be computed in the gradient itself.
func (x *gradients) sumsInPlace(g *maxsim.Gradient) bool { return g.Type == maxsim.F32 && !g.Add }

// sourceFactor returns the factor of row src of a side where it is added, for pair p, to a
// row whose earlyFactor is inverse: upstream times the weight of the query row, and the scale
// of src, or with Normalize its inverse length.
func (x *gradients) sourceFactor(w *puller, p, queryRow, side, src int, inverse float64) float32 {
	c := 1.0
	if x.call.Upstream != nil {
		c = float64(x.call.Upstream[p])
	}
	if x.call.Weights != nil {
		c *= float64(x.call.Weights[queryRow])
	}
	m := x.matrixOf(side)
	if x.call.Normalize {
		// The derivative by x is (g − ⟨g, x̂⟩ x̂) / |x|; the division is done here.
		c *= sign(m.Scale(src)) * x.inverseUnscaledLength(w, side, src) * inverse
	} else if m.Scales != nil {
		c *= float64(m.Scales[src])
	}
	return float32(c)
}

// matrixOf returns the matrix of a side: 0 for the queries, 1 for the documents.
func (x *gradients) matrixOf(i int) *maxsim.Matrix {
	if i == 0 {
		return &x.q.Tokens
	}
	return &x.d.Tokens
}

// addRows adds rows of a matrix times their factors to sum, in their order.
func (x *gradients) addRows(w *puller, sum []float32, m *maxsim.Matrix, rows []uint32, factors []float32) {
	if m.Type == maxsim.F32 {
		x.backend.tier.Vectors.AddRows(sum, m.F32, rows, factors)
		return
	}
	for i, r := range rows {
		x.backend.tier.Vectors.AddScaled(sum, x.floatRow(&w.row, m, int(r)), factors[i])
	}
}

// floatRow returns a row as float32, without its scale. It may use buf.
func (x *gradients) floatRow(buf *[]float32, m *maxsim.Matrix, i int) []float32 {
	if m.Type == maxsim.F32 {
		return m.F32[i*m.Dim : (i+1)*m.Dim]
	}
	*buf = resize(*buf, m.Dim)
	widenRows(x.backend.tier, m, *buf, i, i+1)
	return *buf
}

// inverseUnscaledLength returns the inverse of the length of a row, without its scale.
func (x *gradients) inverseUnscaledLength(w *puller, side, i int) float64 {
	if list := x.inverses[side]; len(list) > 0 {
		return list[i]
	}
	row := x.floatRow(&w.other, x.matrixOf(side), i)
	x.backend.tier.Vectors.Squares(w.squares[:], row, len(row))
	return inverseRoot(sumSquares(&w.squares[0], row))
}

// inverseLength returns the inverse of the length of a row, its scale included, or 0 for a row
// of zeros.
func (x *gradients) inverseLength(w *puller, side, i int) float64 {
	return x.divideByScale(side, i, x.inverseUnscaledLength(w, side, i))
}

// divideByScale divides an inverse length by the scale of the row, or 0 if that is 0.
func (x *gradients) divideByScale(side, i int, inverse float64) float64 {
	scale := math.Abs(float64(x.matrixOf(side).Scale(i)))
	if scale == 0 {
		return 0
	}
	return inverse / scale
}

// earlyFactor returns the part of a row's inverse length that sourceFactor applies. That is
// all of it, unless it is so far from 1 that its product with the inverse of another length,
// of 1e-32 to 1e32, may leave the range of float32. Then it is 1, and finishSums multiplies
// the sum by the inverse length.
func earlyFactor(inverse float64) float64 {
	if inverse == 0 || inverse > 1e-6 && inverse < 1e6 {
		return inverse
	}
	return 1
}

// finishSums turns the sums of the rows from to to into gradients and writes them to g. With
// Normalize the sums are derivatives by x/|x|, which it turns into those by x.
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
			inverse := x.inverseUnscaledLength(w, side, from+i)
			row := x.floatRow(&w.row, &b.Tokens, from+i)
			c := -x.dot(w, sum, row) * inverse * inverse
			if scaled := x.divideByScale(side, from+i, inverse); earlyFactor(scaled) == scaled {
				x.backend.tier.Vectors.AddScaled(sum, row, float32(c))
			} else {
				for j, v := range row {
					sum[j] = float32(scaled * (float64(sum[j]) + float64(c*float64(v))))
				}
			}
		}
		if !x.sumsInPlace(g) {
			g.Put(from+i, sum)
		}
	}
}

// dot returns the product of two rows in float64.
func (x *gradients) dot(w *puller, a, b []float32) float64 {
	s := &w.squares[0]
	x.backend.tier.Vectors.Products(s, a, b)
	for j := len(a) &^ 7; j < len(a); j++ {
		s[j&7] += float64(a[j]) * float64(b[j])
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}
