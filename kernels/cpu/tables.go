package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// The residual part of a product, ⟨g ⊙ q, w[b]⟩, is a sum over the bytes of a
// packed residual. A byte has 256 values, so each query has a table for every byte, with
// the sum over the byte's fields for each value (asymmetric distance computation, Jégou
// et al., 2011).
//
//  1. Entries are integers, in units of the query token.
//  2. The entry of a byte is the sum of the rounded entries of its two nibbles.
//  3. The smallest entry of a nibble is subtracted from its entries, so that none is
//     negative.
//  4. A table row has the entries of a group of query tokens in adjacent lanes.

const (
	fastGroup = 32 // query tokens a row at 16 bits each
	fineGroup = 16 // query tokens a row at 32 bits each

	maxGroupTables = 8 << 20  // bytes of the tables of a group; larger ones do not pay
	maxQueryTables = 64 << 20 // bytes of all tables of a query
)

// residualRange bounds the residual part of the products of a query token, and has the
// units that it is rounded to.
type residualRange struct {
	lo, hi   float64 // of ⟨g ⊙ q, w[b]⟩ over all b
	maxAbs   float64 // Σ|g_j·q_j| · max|w|, no less than |lo| and |hi|
	norm     float64 // ‖q‖
	fastUnit float64 // units of the table entries
	fineUnit float64

	// With a uniform codebook, by kernels.Level: see setLevelUnits.
	levelUnits     [2]float64 // of the integers of g ⊙ q
	levelRoundings [2]float64 // bounds of the error of ⟨g ⊙ q, w[b]⟩ by rounding g ⊙ q
	squareSum8     float64    // Σδ² of the errors δ of rounding g ⊙ q to 8 bits
}

// computeResidualRange computes the ranges and units of query token i.
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
	// within 16 bits. Rounding its 2·rowBytes nibbles adds up to rowBytes units; 4 units
	// are for the roundings of S, scale and result.
	top := float64(q.hi[i]) + max(s.scaleMin*r.hi, s.scaleMax*r.hi)
	bottom := float64(q.lo[i]) + min(s.scaleMin*r.lo, s.scaleMax*r.lo)
	r.fastUnit = max(top, -bottom) / float64(32768-s.rowBytes-4)
	if !(r.fastUnit > 0) {
		r.fastUnit = 1
	}
	// Level Fine: a lane holds (⟨g ⊙ q, w⟩ − lo)/unit within 32 bits, likewise.
	r.fineUnit = (r.hi - r.lo) / (1<<32 - float64(s.rowBytes) - 4)
	if !(r.fineUnit > 0) {
		r.fineUnit = 1
	}
	if s.codec.Codebook.Uniform() {
		q.setLevelUnits(i, &r)
	}
	return r
}

// scaledComponent returns g_j·q_j of query token i.
func (q *query) scaledComponent(i, j int) float64 {
	v := float64(q.Vectors[i*q.scorer.dim+j])
	if g := q.scorer.codec.DimScale; g != nil {
		v *= float64(g[j])
	}
	return v
}

// usesTables reports whether tables for groups of group query tokens are small enough. It
// depends only on the codec and the number of query tokens, so that the score of a document
// does not depend on the other documents of a search.
func (q *query) usesTables(group int) bool {
	bytes := q.scorer.rowBytes * 256 * 64 // of a group: 256 rows of 64 bytes for each residual byte
	return !q.scorer.hasNegativeScale && bytes <= maxGroupTables && (q.N+group-1)/group*bytes <= maxQueryTables
}

// fillTables builds the tables of the query tokens first to first+n. inverse has 1/unit of
// each of these tokens, and width is the number of bits of a lane.
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

// fillByteTable fills the table of residual byte p for a codebook with a table of 8 bits:
// the byte is one component, whose entries are not sums over nibbles.
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

// nibbleProducts returns the sums of the products of query token i with the fields of a
// nibble of residual byte p, for each of its values, less the smallest sum. h is 0 for the
// low nibble and 1 for the high one.
func (q *query) nibbleProducts(i, p, h int) (values [16]float64) {
	s := q.scorer
	nbits := s.codec.Codebook.Nbits
	if nbits == 8 {
		v := q.scaledComponent(i, p) * s.step8 * float64(1+15*h) // the high nibble counts 16 times
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
		var products [16]float64
		for b, w := range s.weights {
			products[b&15] = float64(v*float64(w)) - low // b < 16: the mask saves a bounds check
		}
		mask := len(s.weights) - 1
		for x := range values {
			values[x] += products[x>>(f*nbits)&mask&15]
		}
	}
	return values
}

// fastTables has the tables of level Fast.
type fastTables struct {
	tables  []byteTable // [groups, rowBytes]
	inverse []float64   // scaleMax/unit of each query token
}

// buildFast fills the tables of level Fast.
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

// rowWords has S in words of 16 bits, which level Fast reads, and the factors that turn S
// into them.
type rowWords struct {
	rows     []tableRow // [groups, K]: (mul·S + a·low) + bias, rounded down
	mul, low [][fastGroup]float32
	bias     float32
	scales   []float32 // a of each centroid. nil means that all are 1
}

// setWordFactors computes the factors that turn S into words. A word is
//
//	32768 + (S + a·lo)/unit  with tables
//	(S + a·low)/unit         with tiles, signed
//	32768 + S/unit           for algorithms that read S alone
//
// rounded to the nearest integer: the bias has ½ more, because the loops round down.
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
		w.bias = 65536.5 // makes every sum positive; its low 16 bits are the signed word
		if s.tiles.scales != nil {
			w.scales = s.codec.CentroidScale
		}
	case byFastTables:
		if s.scales16 != nil {
			w.scales = s.codec.CentroidScale
			w.bias += 0.5 // makes up for the product with the scale, which is rounded down
		}
	}
	for i := range q.ranges {
		mul, low := &w.mul[i/fastGroup][i%fastGroup], &w.low[i/fastGroup][i%fastGroup]
		switch r := &q.ranges[i]; fastAlgorithm {
		case byTiles:
			t := &q.tiles.tokens[i]
			*mul = float32(1 / t.unit)
			// The shift of the sum C rounds down: half a unit, scaled as C is, makes up for it.
			*low = float32(t.low/t.unit + 0.5/s.tiles.scaleMax)
		case byFastTables:
			*mul, *low = float32(1/r.fastUnit), float32(r.lo/r.fastUnit)
		default:
			*mul = float32(1 / q.wordUnit(i))
		}
	}
}

// wordUnit returns the unit of words that hold S alone, for query token i: the largest |S|
// is 32766 units, within 16 bits after its rounding.
func (q *query) wordUnit(i int) float64 {
	if unit := float64(max(q.hi[i], -q.lo[i])) / 32766; unit > 0 {
		return unit
	}
	return 1
}

// buildWords computes the words of all rows of S.
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

// fineTables has the tables of level Fine. The sum of a token's entries stands for
// ⟨g ⊙ q, w⟩ = mid + unit·(sum − 2³¹).
type fineTables struct {
	tables  []byteTable          // [groups, rowBytes]
	inverse []float64            // 1/unit of each query token
	unit    [][fineGroup]float32 // [groups]
	mid     [][fineGroup]float32 // [groups]
}

// buildFine fills the tables of level Fine: with a uniform codebook from the integers of
// levelsPath, so that all tiers have the same sums, and else from rounded products.
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
