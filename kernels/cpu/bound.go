package cpu

import (
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/alike"
)

const eps = 0x1p-24 // half the distance of float32 values around 1

// ErrorBound implements [kernels.Query]. Over the query tokens it adds up |weight| ·
// the largest factor · the errors of: S in float32, (d+1)·2⁻²⁴·‖q‖·max‖c‖, and what
// levelError says.
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

// levelError bounds the error of the product of query token i with a decoded
// token at a level, without that of S in float32: factor times the factor of the token, and
// fixed times the largest factor. The error of S by products of bytes is that of its
// screenToken. The residual part is wrong, at level Fast, by a unit for each residual byte
// (two nibbles rounded to half a unit) and three for
// the roundings of S, scale and result, a unit being (max|S| + max a·max|⟨g ⊙ q,
// w⟩|) / (32764 − residual bytes); at level Fine by the same with units of 2⁻³² of
// the range of ⟨g ⊙ q, w⟩ and the rounding of float32 arithmetic; with products of
// bytes, by what rounding the query may have changed instead.
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

// maxRounding is half a unit, and what float32 may add to it.
const maxRounding = 0.55

// tileRoundings is how many units the roundings of shift and row of S make, and those
// of a scale and its product.
func (q *query) tileRoundings() float64 {
	if q.scorer.tiles.scales != nil {
		return 2*maxRounding + 1.1
	}
	return 2 * maxRounding
}

// maxAbsScale is the largest |scale| of a centroid.
func (s *scorer) maxAbsScale() float64 { return max(s.scaleMax, -s.scaleMin) }

// Shortfall implements [kernels.Query]. Where both levels use the same S, its error
// does not count.
func (q *query) Shortfall(b kernels.Bound) kernels.Shortfall {
	fast := q.algorithmFor(kernels.Fast)
	switch {
	case fast == byFloat && !q.usesByteProducts(): // so is level Fine then
		return kernels.Shortfall{}
	case fast == byTiles:
		q.buildOnce(builtTiles, (*query).buildTiles)
	}
	q.buildOnce(builtShort+int(b), func(q *query) {
		q.shortfalls[b] = q.computeShortfall(b, fast)
		// Of few roundings the worst errors are the smaller bound.
		worst := q.computeShortfall(kernels.Worst, fast)
		if factorMax := q.scorer.codec.FactorMax; worst.Of(factorMax) < q.shortfalls[b].Of(factorMax) {
			q.shortfalls[b] = worst
		}
	})
	return q.shortfalls[b]
}

func (q *query) computeShortfall(b kernels.Bound, fast algorithm) (short kernels.Shortfall) {
	var square [2]float64
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
	short.Factor = (short.Factor + float64(kernels.Deviations*math.Sqrt(square[0]))) * (1 + 1e-4)
	short.Fixed = (short.Fixed + float64(kernels.Deviations*math.Sqrt(square[1]))) * float64(q.scorer.codec.FactorMax) * (1 + 1e-4)
	return short
}

// centroidSquareSum bounds Σh² of the roundings ±h of centroids. Query tokens whose best tokens of
// a document have the same centroid meet the same roundings e: together they have Σ_j (e_j·Σ_i
// w_i·q_ij)². However the query is divided among centroids, that is at most the sum of those
// Σ_j e_j²·w_i·q_ij·w_k·q_kj, over all pairs of tokens, that are above 0.
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
		for r := range n { // of length 1, so that products do not leave the range of float32
			norm := max(q.ranges[first+r].norm, minUnit)
			for j, e := range q.screen.centroids.maxErrors {
				sc.floats[r*s.dim+j] = float32(float64(q.Vectors[(first+r)*s.dim+j]) / norm * (e / maxError) * (e / maxError))
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

// roundingSpread is √Σh² of the roundings ±h of level Fast that query token i meets, those of
// centroids left out, and what has to be added in full: the rest, which is not known to
// cancel. Level Fine rounds the query too, which has only to be added to each h.
func (q *query) roundingSpread(i int, fast algorithm) (spread, systematic float64) {
	if spread, systematic = q.residualSpread(i, fast); q.usesByteProducts() {
		t := &q.screen.tokens[i]
		spread, systematic = math.Hypot(spread, t.spread), systematic+t.systematic
		if fast == byLevels || fast == byFloat {
			spread = math.Hypot(spread, maxRounding*q.wordUnit(i))
		}
	}
	return spread, systematic
}

// residualSpread is spread but for the sums that words of S are made of, and for the
// roundings of words of S alone.
func (q *query) residualSpread(i int, fast algorithm) (spread, systematic float64) {
	s, r := q.scorer, &q.ranges[i]
	a := s.maxAbsScale()
	systematic = 34 * eps * (r.norm*s.maxCentroidNorm() + a*r.maxAbs)
	fineRounding, fields := 0.0, 1.0 // level Fine: half a unit of the query; fields of a nibble
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
	h := r.fastUnit/2 + fields*fineRounding
	return math.Hypot(math.Sqrt(2*float64(s.rowBytes))*h, math.Sqrt2*maxRounding*r.fastUnit), systematic
}

// likeness tells how many query tokens are rounded alike.
type likeness struct {
	counter alike.Counter
	counts  []float32 // of each token: as Counter.Count says
}

// chanceShare is the share of components of unrelated tokens that may happen to be alike.
const chanceShare = 1.0 / 32

// countAlike finds out how many query tokens are rounded alike: in tables, bytes or tiles,
// whose steps differ in size. If S is made of another rounding, the larger steps count.
func (q *query) countAlike(fast algorithm) []float32 {
	s, l := q.scorer, &q.alike
	l.counts, l.counter.Ended = resize(l.counts, q.N), q.ended
	l.counter.Count(l.counts, s.dim, chanceShare, func(i, j int) alike.Code {
		steps := math.Abs(q.scaledComponent(i, j))
		switch fast {
		case byLevels:
			steps *= 4 / q.ranges[i].levelUnits[kernels.Fast]
		case byTiles:
			if steps *= 4; q.tiles.tokens[i].grain > 0 {
				steps /= q.tiles.tokens[i].grain
			}
		case byFloat:
			steps = math.Inf(1)
		default: // an entry is the sum of several, each with an error of its own
			steps *= s.weightMax / q.ranges[i].fastUnit
		}
		if unit := q.screen.sumUnit(i); unit > 0 {
			steps = min(steps, 4*math.Abs(float64(q.Vectors[i*s.dim+j])*float64(q.screen.centroids.step[j]))/unit)
		}
		if !(steps < float64(alike.MaxCode)) {
			return alike.MaxCode
		}
		return alike.Code(steps)
	})
	return l.counts
}
