package cpu

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/alike"
)

const eps = 0x1p-24 // unit roundoff of float32: half the distance of values around 1

// ErrorBound implements [kernels.Query]. It is the sum, over the query tokens, of
//
//	|weight| · largest factor · ((d+8)·eps·‖q‖·max‖c‖ + both terms of levelError),
//
// in which the first term bounds the error of S in float32.
func (q *query) ErrorBound(level kernels.Level) float32 {
	s := q.scorer
	normMax := s.maxCentroidNorm()
	var sum float64
	for i, r := range q.ranges {
		fixed, factor := q.levelError(i, level)
		e := (float64(s.dim)+8)*eps*r.norm*normMax + fixed + factor
		sum += math.Abs(float64(q.weights[i])) * e
	}
	return float32(sum * float64(s.codec.FactorMax) * (1 + 1e-4))
}

// levelError bounds the error of the product of query token i with a decoded token at a
// level, except for the error of S in float32. The bound is factor times the factor of the
// token, plus fixed times the largest factor. Its terms are, in this order:
//
//  1. With S by products of bytes, the error of the sums, maxError of the screenToken, and
//     of their rounding to words.
//  2. The error of the residual part. With tables it is a unit for each residual byte,
//     which has two nibbles rounded to half a unit, and three units for the roundings of S,
//     scale and result. A unit is (max|S| + max a·max|⟨g ⊙ q, w⟩|) / (32764 − residual
//     bytes) at level Fast, and 2⁻³² of the range of ⟨g ⊙ q, w⟩ at level Fine. With
//     products of bytes, it is the error of rounding the query to integers.
//  3. A few roundings of float32 arithmetic: a multiple of eps·product.
func (q *query) levelError(i int, level kernels.Level) (fixed, factor float64) {
	s, r := q.scorer, &q.ranges[i]
	a, rowBytes := s.maxAbsScale(), float64(s.rowBytes)
	product := r.norm*s.maxCentroidNorm() + a*r.maxAbs // bounds the product and its parts
	var score, word float64                            // errors of S
	if level == kernels.Fast && q.usesByteProducts() {
		score, word = q.screen.tokens[i].maxError, maxRounding*q.wordUnit(i)
		product += score
	}
	switch q.algorithmFor(level) {
	case byLevels, byLevelTables:
		factor = word + a*r.levelRoundings[level] + 16*eps*product
	case byFineTables:
		factor = a*r.fineUnit*(rowBytes+3) + 12*eps*product
	case byTiles:
		q.buildOnce(builtTiles, (*query).buildTiles)
		t := &q.tiles.tokens[i]
		factor = t.error + q.tileRoundings()*t.unit + 8*eps*product
		fixed = maxRounding * t.unit
	case byFastTables:
		factor = r.fastUnit*(rowBytes+3) + 8*eps*product
	default:
		factor = word + (float64(s.dim)+8)*eps*a*r.maxAbs + 12*eps*product
	}
	return fixed, factor + score + eps*product
}

// maxRounding bounds the error of one rounding to units, in units: ½, and 0.05 for the
// float32 operations before it.
const maxRounding = 0.55

// tileRoundings bounds the roundings of a product by tiles, in units: those of the shift
// and of S, and, if centroids have scales, 1.1 for a scale and the product with it.
func (q *query) tileRoundings() float64 {
	if q.scorer.tiles.scales != nil {
		return 2*maxRounding + 1.1
	}
	return 2 * maxRounding
}

// maxAbsScale returns the largest |scale| of a centroid.
func (s *scorer) maxAbsScale() float64 { return max(s.scaleMax, -s.scaleMin) }

// Shortfall implements [kernels.Query]. Where both levels use the same S, its error
// does not count.
func (q *query) Shortfall(b kernels.Bound) kernels.Shortfall {
	fast := q.algorithmFor(kernels.Fast)
	switch {
	case fast == byFloat && !q.usesByteProducts(): // level Fine computes the same then
		return kernels.Shortfall{}
	case fast == byTiles:
		q.buildOnce(builtTiles, (*query).buildTiles)
	}
	q.buildOnce(builtShort+int(b), func(q *query) {
		q.shortfalls[b] = q.computeShortfall(b, fast)
		// For a query of few roundings, the bound by worst errors is the smaller one.
		worst := q.computeShortfall(kernels.Worst, fast)
		if factorMax := q.scorer.codec.FactorMax; worst.ForFactor(factorMax) < q.shortfalls[b].ForFactor(factorMax) {
			q.shortfalls[b] = worst
		}
	})
	return q.shortfalls[b]
}

// computeShortfall adds up the errors of all query tokens at both levels. For Probable,
// squares of independent roundings ±h are added instead, and the sum of the roundings is
// below λ·√Σh² (see [kernels.Deviations]). Tokens that are rounded alike, as alikeCounts
// has them, are not independent: each h² counts that many times.
func (q *query) computeShortfall(b kernels.Bound, fast algorithm) (short kernels.Shortfall) {
	var square [2]float64 // Σh²: of roundings times the factor of a token, and times the largest factor
	var alikeCounts []float32
	if b != kernels.Worst {
		alikeCounts = q.countAlike(fast)
		if q.usesByteProducts() {
			square[0] = q.centroidSquareSum()
		}
	}
	for i := range q.ranges {
		if q.endedAt(i) {
			return short
		}
		w := math.Abs(float64(q.weights[i]))
		fixed, factor := q.levelError(i, kernels.Fast)
		_, fine := q.levelError(i, kernels.Fine)
		if b == kernels.Worst || q.weights[i] < 0 { // larger maxima lower the score
			short.Fixed += w * fixed
			short.Factor += w * (factor + fine)
			continue
		}
		spread, systematic := q.roundingSpread(i, fast)
		square[0] += w * w * spread * spread * float64(alikeCounts[i])
		square[1] += w * w * fixed * fixed * float64(alikeCounts[i])
		short.Factor += w * systematic
	}
	const slack = 1 + 1e-4 // for the roundings of this computation
	fixed := short.Fixed + float64(kernels.Deviations*math.Sqrt(square[1]))
	short.Factor = (short.Factor + float64(kernels.Deviations*math.Sqrt(square[0]))) * slack
	short.Fixed = fixed * float64(q.scorer.codec.FactorMax) * slack
	return short
}

// centroidSquareSum bounds Σh² of the roundings ±h of centroids to bytes. If the best
// tokens of a document for query tokens i have the same centroid, its roundings e are
// common to them, and their part of Σh² is Σ_j (e_j·Σ_i w_i·q_ij)². However the query tokens
// are divided among centroids, the sum of these parts is at most the sum, over all pairs
// (i, k), of those Σ_j e_j²·w_i·q_ij·w_k·q_kj that are positive.
//
// The products are computed by the loop for S, with q ⊙ e² as centroids.
func (q *query) centroidSquareSum() (square float64) {
	s := q.scorer
	maxError := slices.Max(q.screen.centroids.maxErrors)
	if maxError == 0 {
		return 0
	}
	sc := s.scratchPool.Get().(*scratch)
	defer s.scratchPool.Put(sc)
	lanes := (q.N + 31) &^ 31
	sc.lo, sc.hi = resize(sc.lo, lanes), resize(sc.hi, lanes)
	sc.floats, sc.rows = resize(sc.floats, rowsPerFill*s.dim), resize(sc.rows, rowsPerFill*q.Stride)
	for first := 0; first < q.N; first += rowsPerFill {
		if q.ended != nil && q.ended() {
			return 0
		}
		n := min(rowsPerFill, q.N-first)
		// Vectors and errors are scaled to at most 1, so that products stay in the range of float32.
		for r := range n {
			norm := max(q.ranges[first+r].norm, minUnit)
			for j, e := range q.screen.centroids.maxErrors {
				unit := float64(q.Vectors[(first+r)*s.dim+j]) / norm
				sc.floats[r*s.dim+j] = float32(unit * (e / maxError) * (e / maxError))
			}
		}
		s.loops.CentroidScores(sc.rows[:n*q.Stride], sc.floats[:n*s.dim], n, &q.QueryVectors, sc.lo, sc.hi, nil)
		for r := range n {
			w := float64(max(q.weights[first+r], 0)) * max(q.ranges[first+r].norm, minUnit)
			for k, v := range sc.rows[r*q.Stride : r*q.Stride+q.N] {
				v := float64(v) + float64(s.dim+4)*eps*q.ranges[k].norm
				square += w * float64(max(q.weights[k], 0)) * max(v, 0)
			}
		}
	}
	return square * maxError * maxError
}

// roundingSpread returns the errors of level Fast for query token i in two parts: spread is
// √Σh² of its roundings ±h, except those of centroids; systematic bounds the errors that
// may not cancel, which are added in full. Level Fine also rounds the query: its h is added
// to each h of level Fast.
func (q *query) roundingSpread(i int, fast algorithm) (spread, systematic float64) {
	if spread, systematic = q.residualSpread(i, fast); q.usesByteProducts() {
		t := &q.screen.tokens[i]
		spread, systematic = math.Hypot(spread, t.spread), systematic+t.systematic
		if fast == byLevels || fast == byFloat { // these read S from words
			spread = math.Hypot(spread, maxRounding*q.wordUnit(i))
		}
	}
	return spread, systematic
}

// residualSpread is roundingSpread without the errors of S by products of bytes and of its
// rounding to words.
func (q *query) residualSpread(i int, fast algorithm) (spread, systematic float64) {
	s, r := q.scorer, &q.ranges[i]
	a := s.maxAbsScale()
	// 17 roundings of float32 arithmetic at each level, see levelError.
	systematic = 34 * eps * (r.norm*s.maxCentroidNorm() + a*r.maxAbs)
	fineRounding, fields := 0.0, 1.0 // h of level Fine for each field or nibble; fields of a nibble
	if q.algorithmFor(kernels.Fine) == byFineTables {
		fineRounding = a * r.fineUnit / 2
	} else {
		fineRounding = a * r.levelUnits[kernels.Fine] / 2 * s.weightMax
		fields = max(4/float64(s.codec.Codebook.Nbits), 1)
	}
	fineSpread := math.Sqrt(float64(s.dim)) * fineRounding
	switch fast {
	case byFloat:
		return 0, systematic + float64(s.dim+8)*eps*a*r.maxAbs
	case byLevels:
		return a*s.weightMax*math.Sqrt(r.squareSum8) + fineSpread, systematic
	case byTiles:
		t := &q.tiles.tokens[i]
		if t.square == 0 {
			systematic += t.error
		}
		if s.tiles.scales != nil {
			systematic += 1.1 * t.unit
		}
		return math.Hypot(math.Sqrt(t.square)+fineSpread, math.Sqrt2*maxRounding*t.unit), systematic
	}
	if s.scales16 != nil {
		systematic += r.fastUnit
	}
	// Tables: 2·rowBytes nibbles, and the roundings of S and of the result.
	h := r.fastUnit/2 + fields*fineRounding
	return math.Hypot(math.Sqrt(2*float64(s.rowBytes))*h, math.Sqrt2*maxRounding*r.fastUnit), systematic
}

// likeness counts the query tokens that are rounded alike.
type likeness struct {
	counter alike.Counter
	counts  []float32 // by query token, see alike.Counter.Count
}

// chanceShare is the share of components of unrelated tokens that may be alike by chance.
const chanceShare = 1.0 / 32

// countAlike returns for each query token how many tokens are rounded like it. Components
// are compared in quarters of a rounding step, whose size depends on the algorithm. If S is
// by products of bytes, which round too, the larger of both steps counts.
func (q *query) countAlike(fast algorithm) []float32 {
	s, l := q.scorer, &q.alike
	l.counts, l.counter.Ended = resize(l.counts, q.N), q.ended
	l.counter.Count(l.counts, s.dim, chanceShare, func(i, j int) alike.Code {
		steps := math.Abs(q.scaledComponent(i, j)) // in quarters of a step
		switch fast {
		case byLevels:
			steps *= 4 / q.ranges[i].levelUnits[kernels.Fast]
		case byTiles:
			if steps *= 4; q.tiles.tokens[i].grain > 0 {
				steps /= q.tiles.tokens[i].grain
			}
		case byFloat:
			steps = math.Inf(1)
		default: // a table entry is the sum of several components, each with its own error
			steps *= s.weightMax / q.ranges[i].fastUnit
		}
		if unit := q.screen.sumUnit(i); unit > 0 {
			component := float64(q.Vectors[i*s.dim+j]) * float64(q.screen.centroids.step[j])
			steps = min(steps, 4*math.Abs(component)/unit)
		}
		if !(steps < float64(alike.MaxCode)) {
			return alike.MaxCode
		}
		return alike.Code(steps)
	})
	return l.counts
}
