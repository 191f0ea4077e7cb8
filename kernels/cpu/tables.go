package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// The residual part of a product, ⟨g ⊙ q, w[b]⟩, is a sum over the bytes of a
// packed residual, and each byte has 256 values: for one query the sums over
// the fields of every byte at every value are tabled (asymmetric distance
// computation, Jégou et al., 2011), as integers in units of each query token,
// less the smallest one of each nibble. A table row holds a group of query
// tokens side by side. A byte's entry is the sum of two rounded nibble entries.

const (
	fastGroup = 32 // query tokens a row at 16 bits each
	fineGroup = 16 // query tokens a row at 32 bits each

	maxGroupTables = 8 << 20  // bytes of the tables of a group that still pay
	maxQueryTables = 64 << 20 // bytes of all tables of a query
)

// residualRange bounds the residual part of the products of a query token.
type residualRange struct {
	lo, hi   float64 // of ⟨g ⊙ q, w[b]⟩ over all b
	maxAbs   float64 // Σ|g_j·q_j| · max|w|, no less than both
	norm     float64 // ‖q‖
	fastUnit float64 // units of the tables
	fineUnit float64

	// With uniform levels, by level: see levelRange.
	levelUnits     [2]float64
	levelRoundings [2]float64 // of ⟨g ⊙ q, w[b]⟩
	squareSum8     float64    // of what rounding g ⊙ q to 8 bits changes: Σδ²
}

func (q *query) computeResidualRange(i int) (r residualRange) {
	s := q.scorer
	for j := range s.dim {
		v := q.scaledComponent(i, j)
		r.lo += min(v*s.weightMin, v*s.weightMax)
		r.hi += max(v*s.weightMin, v*s.weightMax)
		r.maxAbs += math.Abs(v) * max(s.weightMax, -s.weightMin)
		x := float64(q.Vectors[i*s.dim+j])
		r.norm += x * x
	}
	r.norm = math.Sqrt(r.norm)

	// Level Fast: a lane holds 32768 + (S + a·⟨g ⊙ q, w⟩)/unit, which must stay
	// within 16 bits with every nibble rounded up, and some more roundings.
	top := float64(q.hi[i]) + max(s.scaleMin*r.hi, s.scaleMax*r.hi)
	bottom := float64(q.lo[i]) + min(s.scaleMin*r.lo, s.scaleMax*r.lo)
	r.fastUnit = max(top, -bottom) / float64(32768-s.rowBytes-4)
	if !(r.fastUnit > 0) {
		r.fastUnit = 1
	}
	r.fineUnit = (r.hi - r.lo) / (1<<32 - float64(s.rowBytes) - 4)
	if !(r.fineUnit > 0) {
		r.fineUnit = 1
	}
	if s.codec.Codebook.Uniform() {
		q.setLevelUnits(i, &r)
	}
	return r
}

// scaledComponent is g_j·q_j of a query token.
func (q *query) scaledComponent(i, j int) float64 {
	v := float64(q.Vectors[i*q.scorer.dim+j])
	if g := q.scorer.codec.DimScale; g != nil {
		v *= float64(g[j])
	}
	return v
}

// usesTables reports whether MaxSim at a level uses tables. It depends on nothing
// but the codec and the number of query tokens, so that a document's score
// does not change with its company.
func (q *query) usesTables(group int) bool {
	bytes := q.scorer.rowBytes * 256 * 64
	return !q.scorer.hasNegativeScale && bytes <= maxGroupTables && (q.N+group-1)/group*bytes <= maxQueryTables
}

// fillTables builds the tables of the query tokens first to first+n, with
// entries multiplied by inverse of each token, in lanes of the given width.
func (q *query) fillTables(tables []byteTable, first, n int, inverse []float64, width int) {
	perWord := 64 / width
	nibbles := &q.nibbles
	for p := range tables {
		if q.scorer.codec.Codebook.Nbits == 8 && q.scorer.step8 == 0 {
			q.fillByteTable(&tables[p], first, n, p, inverse, width)
			continue
		}
		clear(nibbles[:])
		for h := range nibbles {
			for i := range n {
				values := q.nibbleProducts(first+i, p, h)
				word, shift := i/perWord, i%perWord*width
				for x, v := range values {
					nibbles[h][x][word] |= uint64(float64(v*inverse[i])+0.5) << shift
				}
			}
		}
		q.scorer.loops.Compose(&tables[p], &nibbles[0], &nibbles[1])
	}
}

// fillByteTable fills the table of residual byte p, which is one component of 8
// bits, of a codec whose weights follow no rule.
func (q *query) fillByteTable(t *byteTable, first, n, p int, inverse []float64, width int) {
	perWord := 64 / width
	*t = byteTable{}
	for i := range n {
		word, shift := i/perWord&7, i%perWord*width
		v := q.scaledComponent(first+i, p)
		low := min(float64(v*q.scorer.weightMin), float64(v*q.scorer.weightMax))
		for b, w := range q.scorer.weights {
			t[b][word] |= uint64(float64((float64(v*float64(w))-low)*inverse[i])+0.5) << shift
		}
	}
}

// nibbleProducts returns the partial products of query token i for each value of
// nibble h (0: low) of residual byte p, less the smallest.
func (q *query) nibbleProducts(i, p, h int) (values [16]float64) {
	s := q.scorer
	nbits := s.codec.Codebook.Nbits
	if nbits == 8 {
		v := q.scaledComponent(i, p) * s.step8 * float64(1+15*h)
		low := min(0, 15*v)
		for x := range values {
			values[x] = float64(v*float64(x)) - low
		}
		return values
	}
	fields := 4 / nbits
	j := (2*p + h) * fields
	for f := 0; f < fields && j+f < s.dim; f++ {
		v := q.scaledComponent(i, j+f)
		low := min(v*s.weightMin, v*s.weightMax)
		var part [16]float64
		for b, w := range s.weights {
			part[b&15] = float64(v*float64(w)) - low
		}
		mask := len(s.weights) - 1
		for x := range values {
			values[x] += part[x>>(f*nbits)&mask&15]
		}
	}
	return values
}

// fastTables is what level Fast needs of a query.
type fastTables struct {
	tables  []byteTable // [groups, rowBytes]
	inverse []float64
}

func (q *query) buildFast() {
	s, f := q.scorer, &q.fast
	groups := (q.N + fastGroup - 1) / fastGroup
	f.tables, f.inverse = resize(f.tables, groups*s.rowBytes), resize(f.inverse, q.N)
	for i, r := range q.ranges {
		f.inverse[i] = s.scaleMax / r.fastUnit
	}
	for g := range groups {
		first := g * fastGroup
		if q.endedAt(first + fastGroup - 1) {
			return
		}
		n := min(fastGroup, q.N-first)
		q.fillTables(f.tables[g*s.rowBytes:(g+1)*s.rowBytes], first, n, f.inverse[first:first+n], 16)
	}
}

// rowWords has S in words of 16 bits, which level Fast reads, and the factors that make them.
type rowWords struct {
	rows     []tableRow // [groups, K]: (mul·S + a·low) + bias, rounded down
	mul, low [][fastGroup]float32
	bias     float32
	scales   []float32 // a of each centroid; nil means that all are 1
}

// setWordFactors computes the factors that turn S into words: with tables, 32768 + (S + a·lo)/unit; with tiles
// the same but for the 32768, signed; where level Fast reads S alone, 32768 + S/unit.
func (q *query) setWordFactors() {
	s, w, fastAlgorithm := q.scorer, &q.words, q.algorithmFor(kernels.Fast)
	groups := (q.N + fastGroup - 1) / fastGroup
	w.rows = resize(w.rows, groups*s.codec.Centroids.K)
	w.mul, w.low = resize(w.mul, groups), resize(w.low, groups)
	clear(w.mul)
	clear(w.low)
	w.bias, w.scales = 32768.5, nil
	switch fastAlgorithm {
	case byTiles:
		w.bias = 65536.5 // positive throughout; the 16 bits that remain are signed
		if s.tiles.scales != nil {
			w.scales = s.codec.CentroidScale
		}
	case byFastTables:
		if s.scales16 != nil {
			w.scales = s.codec.CentroidScale
			w.bias += 0.5 // the product with the scale is rounded down
		}
	}
	for i := range q.ranges {
		mul, low := &w.mul[i/fastGroup][i%fastGroup], &w.low[i/fastGroup][i%fastGroup]
		switch r := &q.ranges[i]; fastAlgorithm {
		case byTiles:
			t := &q.tiles.tokens[i]
			*mul = float32(1 / t.unit)
			// Half a unit, scaled as C is, for the rounding down of the shift.
			*low = float32(t.low/t.unit + 0.5/s.tiles.scaleMax)
		case byFastTables:
			*mul, *low = float32(1/r.fastUnit), float32(r.lo/r.fastUnit)
		default:
			*mul = float32(1 / q.wordUnit(i))
		}
	}
}

// wordUnit returns the unit of words that hold S alone.
func (q *query) wordUnit(i int) float64 {
	if unit := float64(max(q.hi[i], -q.lo[i])) / 32766; unit > 0 {
		return unit
	}
	return 1
}

// buildWords makes words of all rows of S.
func (q *query) buildWords() {
	q.setWordFactors()
	w, k := &q.words, q.scorer.codec.Centroids.K
	for lo := 0; lo < k; lo += maxCallRows {
		hi := min(lo+maxCallRows, k)
		var a []float32
		if w.scales != nil {
			a = w.scales[lo:hi]
		}
		for g := range w.mul {
			first := g * fastGroup
			if q.endedAt(first + fastGroup - 1) {
				return
			}
			n := min(fastGroup, q.N-first)
			rows, scores := w.rows[g*k+lo:g*k+hi], q.scores[lo*q.Stride+first:]
			q.scorer.loops.Words(rows, scores, q.Stride, n, &w.mul[g], &w.low[g], w.bias, a)
		}
	}
}

// fineTables is what level Fine needs of a query.
type fineTables struct {
	tables  []byteTable // [groups, rowBytes]
	inverse []float64
	unit    [][fineGroup]float32 // ⟨g ⊙ q, w⟩ = mid + unit·(sum − 2³¹)
	mid     [][fineGroup]float32
}

func (q *query) buildFine() {
	s, f := q.scorer, &q.fine
	groups := (q.N + fineGroup - 1) / fineGroup
	f.tables = resize(f.tables, groups*s.rowBytes)
	f.inverse, f.unit, f.mid = resize(f.inverse, q.N), resize(f.unit, groups), resize(f.mid, groups)
	clear(f.unit)
	clear(f.mid)
	uniform := s.codec.Codebook.Uniform()
	for i, r := range q.ranges {
		if uniform {
			f.unit[i/fineGroup][i%fineGroup], f.mid[i/fineGroup][i%fineGroup] = q.levelUnits(i, kernels.Fine)
			continue
		}
		f.inverse[i] = 1 / r.fineUnit
		f.unit[i/fineGroup][i%fineGroup] = float32(r.fineUnit)
		f.mid[i/fineGroup][i%fineGroup] = float32(r.lo + r.fineUnit*(1<<31))
	}
	for g := range groups {
		first := g * fineGroup
		if q.endedAt(first + fineGroup - 1) {
			return
		}
		n := min(fineGroup, q.N-first)
		if uniform {
			q.fillLevelTables(f.tables[g*s.rowBytes:(g+1)*s.rowBytes], first, n)
			continue
		}
		q.fillTables(f.tables[g*s.rowBytes:(g+1)*s.rowBytes], first, n, f.inverse[first:first+n], 32)
	}
}
