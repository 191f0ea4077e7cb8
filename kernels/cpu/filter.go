package cpu

import (
	"math"
	"sync"

	"github.com/plaid-ir/plaid/kernels/internal/portable"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// filter finds nearest centroids on processors that multiply bytes, with the same
// result, to the bit, as computing every product: centroids and rows of x are rounded
// to 7 or 8 bits, and all their products are computed as integers. With
//
//	c = m + s ⊙ l + e_c    and    s ⊙ x = u·n + e_x
//
// for levels l and integers n, |⟨x, c − m⟩ − u·⟨n, l⟩| ≤ D = ‖e_x‖·‖l‖ + ‖x‖·‖e_c‖
// by Cauchy–Schwarz. So a centroid whose integer product is more than 2D/u
// below the largest is not the nearest. The float32 products of the few others
// are computed.
type filter struct {
	loops           *tier.Filter
	dim, k          int
	centroids       []float32
	stride          int // dim rounded up to a multiple of 16
	lo, hi          []float32
	step            []float32
	inverse         []float32
	levels          []byte  // [k, stride]
	maxRoundingNorm float64 // the largest ‖e_c‖
	maxLevelNorm    float64 // the largest ‖l‖
	maxNorm         float64 // the largest ‖c‖

	maxima   [4]float32                   // scratch: the largest ‖e_c‖², ‖c‖², ‖l‖²; a sum that is finite if all c are
	packed   []byte                       // n, [stride/4, filterRows, 4]
	hits     [][18]int32                  // scratch, see collectHits
	bestSums [filterRows]int32            // largest integer product of each row so far
	margins  [filterRows]int32            // 2D/u of each row, rounded up
	pending  [filterRows]pendingCentroids // of each row
}

// pendingCentroids has the centroids that may be the nearest of a row and whose float32
// products are not computed yet, and the best of those whose products are.
type pendingCentroids struct {
	n      int // number of pending centroids
	codes  [32]uint32
	sums   [32]int32 // their integer products
	score  float32   // the largest float32 product so far
	code   uint32    // its centroid
	scored bool      // score and code are set
}

const (
	// Below these sizes the preparation costs more than it saves.
	filterMinRows      = 16
	filterMinCentroids = 64

	filterRows      = 64  // rows of x of one call
	filterCentroids = 252 // centroids of one call: a multiple of 6

	// minUnit is the smallest unit of rounded rows. The squares of their errors would
	// otherwise be lost in float32, see roundRows.
	minUnit = 1e-18
)

var filterPool = sync.Pool{New: func() any { return new(filter) }}

// roundCentroids rounds the centroids. It reports false if they are too small or too large
// for the bounds.
func (f *filter) roundCentroids(centroids []float32, dim int) bool {
	f.dim, f.k, f.centroids = dim, len(centroids)/dim, centroids
	f.stride = (dim + 15) &^ 15
	f.lo, f.hi = resize(f.lo, dim), resize(f.hi, dim)
	f.step, f.inverse = resize(f.step, dim), resize(f.inverse, dim)
	f.levels = resize(f.levels, f.k*f.stride)
	f.packed = resize(f.packed, f.stride*filterRows)
	f.hits = resize(f.hits, 4*(filterCentroids+6))
	resetRanges(f.lo, f.hi)
	callRows := max(1, 1<<17/dim) // the garbage collector cannot interrupt a call
	for c := 0; c < f.k; c += callRows {
		f.loops.Range(f.lo, f.hi, centroids[c*dim:min(c+callRows, f.k)*dim])
	}
	for j := range f.lo {
		f.step[j] = (f.hi[j] - f.lo[j]) / f.loops.MaxLevel
		f.inverse[j] = 0
		if f.step[j] > 0 {
			f.inverse[j] = 1 / f.step[j]
		}
	}
	maxima := &f.maxima
	*maxima = [4]float32{}
	for c := 0; c < f.k; c += callRows {
		c1 := min(c+callRows, f.k)
		levels, rows := f.levels[c*f.stride:c1*f.stride], centroids[c*dim:c1*dim]
		f.loops.Levels(levels, f.stride, rows, f.lo, f.step, f.inverse, maxima)
	}
	// The factors and 4e-6 cover float32 roundings of the squares and of v − lo.
	f.maxNorm = math.Sqrt(float64(maxima[1])) * (1 + 1e-3)
	f.maxRoundingNorm = math.Sqrt(float64(maxima[0]))*(1+1e-3) + f.maxNorm*4e-6
	f.maxLevelNorm = math.Sqrt(float64(maxima[2])) * (1 + 1e-3)
	return f.maxNorm >= minLength && f.maxNorm < 1e15 && isFinite(maxima[3])
}

// nearest writes the nearest centroid of every row of x.
func (f *filter) nearest(codes []uint32, scores []float32, x []float32) {
	rows := len(x) / f.dim
	for r0 := 0; r0 < rows; r0 += filterRows {
		n := min(filterRows, rows-r0)
		block := x[r0*f.dim : (r0+n)*f.dim]
		f.roundRows(block)
		for c0 := 0; c0 < f.k; c0 += filterCentroids {
			// The loop takes at least 6 centroids: for the last ones, also some before c0.
			c1 := min(c0+filterCentroids, f.k)
			c := min(c0, c1-6)
			levels := f.levels[c*f.stride:]
			size := f.loops.Filter(f.hits, levels, f.stride, &f.packed[0], c, &f.bestSums, &f.margins, c1-c)
			f.collectHits(f.hits[:size/len(f.hits[0])/4], block) // a hit is 18 values of 4 bytes
		}
		for i := range n {
			p := &f.pending[i]
			f.scorePending(i, block)
			code, score := p.code, p.score
			if !p.scored { // the row could not be rounded
				var c [1]uint32
				var s [1]float32
				nearestAll(c[:], s[:], f.centroids, block[i*f.dim:(i+1)*f.dim], f.dim)
				code, score = c[0], s[0]
			}
			codes[r0+i] = code
			if scores != nil {
				scores[r0+i] = score
			}
		}
	}
}

// roundRows rounds up to 64 rows and computes their margins. Rows that are too small or too
// large get no hits. Units are at least minUnit because the square of an error, of up to
// half a unit, is computed in float32: the digits that it loses below 1e-45 change the
// error by less than the 1e-6·127·unit that is added.
func (f *filter) roundRows(x []float32) {
	for i := range f.pending {
		f.pending[i].n, f.pending[i].scored = 0, false
		f.pending[i].score = float32(math.Inf(-1))
		f.bestSums[i], f.margins[i] = math.MaxInt32, 0
		if (i+1)*f.dim > len(x) {
			continue
		}
		unit, errorSquare, normSquare := f.loops.Pack(&f.packed[4*i], x[i*f.dim:(i+1)*f.dim], f.step)
		u, length := float64(unit), math.Sqrt(float64(normSquare))*(1+1e-3)
		e := math.Sqrt(float64(errorSquare))*(1+1e-3) + 1e-6*127*u*math.Sqrt(float64(f.dim))
		// D, and the error of the float32 product. The margin has 2 for rounding it to int32.
		d := e*f.maxLevelNorm + length*f.maxRoundingNorm + length*f.maxNorm*float64(f.dim+2)*0x1p-23
		if margin := 2*d/u + 2; u >= minUnit && length >= minLength && margin < 1<<30 { // false for NaN
			f.bestSums[i], f.margins[i] = math.MinInt32/2, int32(margin)
		}
	}
}

// collectHits adds the centroids of the hits to the pending ones of their rows. A hit has the
// integer products of 16 rows with one centroid, the number of the centroid, and a word: the
// group of 16 rows in its upper half, a bit for each row that is hit in its lower half. The
// best sum so far removes entries of a full list; if too few, products are computed.
func (f *filter) collectHits(hits [][18]int32, x []float32) {
	for h := range hits {
		hit := &hits[h]
		first := int(hit[17]>>16) * 16
		for mask, i := uint32(hit[17]&0xffff), 0; mask != 0; mask, i = mask>>1, i+1 {
			if mask&1 == 0 {
				continue
			}
			row, sum := first+i, hit[i&15]
			if sum < f.bestSums[row]-f.margins[row] {
				continue // a later centroid has raised the best sum
			}
			p := &f.pending[row]
			if p.n == len(p.codes) {
				f.dropRuledOut(row)
				if p.n > len(p.codes)/2 {
					f.scorePending(row, x)
				}
			}
			p.codes[p.n], p.sums[p.n] = uint32(hit[16]), sum
			p.n++
		}
	}
}

// dropRuledOut removes the pending centroids of a row that the best integer product so far
// rules out.
func (f *filter) dropRuledOut(row int) {
	p := &f.pending[row]
	minSum, n := f.bestSums[row]-f.margins[row], 0
	for j, sum := range p.sums[:p.n] {
		if sum >= minSum {
			p.codes[n], p.sums[n] = p.codes[j], sum
			n++
		}
	}
	p.n = n
}

// scorePending computes the float32 products of the pending centroids of a row.
func (f *filter) scorePending(row int, x []float32) {
	p := &f.pending[row]
	if p.n == 0 {
		return
	}
	f.dropRuledOut(row)
	centroid := func(j int) []float32 {
		c := int(p.codes[min(j, p.n-1)])
		return f.centroids[c*f.dim : (c+1)*f.dim]
	}
	for j := 0; j < p.n; j += 4 {
		var s [4]float32
		s[0], s[1], s[2], s[3] = portable.Dot1x4(x[row*f.dim:(row+1)*f.dim],
			centroid(j), centroid(j+1), centroid(j+2), centroid(j+3))
		for i, v := range s[:min(4, p.n-j)] {
			code := p.codes[j+i]
			if v > p.score || v == p.score && code < p.code || !p.scored {
				p.score, p.code, p.scored = v, code, true
			}
		}
	}
	p.n = 0
}

// dropReferences drops the references to the caller's slices.
func (f *filter) dropReferences() { f.centroids = nil }
