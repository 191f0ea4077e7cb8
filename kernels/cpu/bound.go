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
	s := q.s
	normMax := s.normMax()
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
	s, r := q.s, &q.ranges[i]
	a, rowBytes := s.scaleBound(), float64(s.rowBytes)
	product := r.norm*s.normMax() + a*r.abs // bounds the product and its parts
	var score, word float64                 // errors of S
	if level == kernels.Fast && q.coarse() {
		score, word = q.screen.tokens[i].error, roundUnit*q.wordUnit(i)
		product += score
	}
	switch q.way(level) {
	case byLevels, byLevelTables:
		factor = word + a*r.rounding[level] + 16*eps*product
	case byFineTables:
		factor = a*r.fine*(rowBytes+3) + 12*eps*product
	case byTiles:
		q.ensure(builtTiles, (*query).buildTiles)
		t := &q.tile.tokens[i]
		factor = t.error + q.tileUnits()*t.unit + 8*eps*product
		fixed = roundUnit * t.unit
	case byFastTables:
		factor = r.fast*(rowBytes+3) + 8*eps*product
	default:
		factor = word + (float64(s.dim)+8)*eps*a*r.abs + 12*eps*product
	}
	return fixed, factor + score + eps*product
}

// roundUnit is half a unit, and what float32 may add to it.
const roundUnit = 0.55

// tileUnits is how many units the roundings of shift and row of S make, and those
// of a scale and its product.
func (q *query) tileUnits() float64 {
	if q.s.tiles.scales != nil {
		return 2*roundUnit + 1.1
	}
	return 2 * roundUnit
}

// scaleBound is the largest |scale| of a centroid.
func (s *scorer) scaleBound() float64 { return max(s.aMax, -s.aMin) }

// Shortfall implements [kernels.Query]. Where both levels use the same S, its error
// does not count.
func (q *query) Shortfall(b kernels.Bound) kernels.Shortfall {
	fast := q.way(kernels.Fast)
	switch {
	case fast == byFloat && !q.coarse(): // so is level Fine then
		return kernels.Shortfall{}
	case fast == byTiles:
		q.ensure(builtTiles, (*query).buildTiles)
	}
	q.ensure(builtShort+int(b), func(q *query) {
		q.short[b] = q.shortfall(b, fast)
		// Of few roundings the worst errors are the smaller bound.
		worst := q.shortfall(kernels.Worst, fast)
		if factorMax := q.s.codec.FactorMax; worst.Of(factorMax) < q.short[b].Of(factorMax) {
			q.short[b] = worst
		}
	})
	return q.short[b]
}

func (q *query) shortfall(b kernels.Bound, fast way) (short kernels.Shortfall) {
	var square [2]float64
	var like []float32
	if b != kernels.Worst {
		like = q.liken(fast)
		if q.coarse() {
			square[0] = q.centroidSquare()
		}
	}
	for i := range q.ranges {
		if q.over(i) {
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
		spread, rest := q.spread(i, fast)
		square[0] += w * w * spread * spread * float64(like[i])
		square[1] += w * w * fixed * fixed * float64(like[i])
		short.Factor += w * rest
	}
	short.Factor = (short.Factor + float64(kernels.Deviations*math.Sqrt(square[0]))) * (1 + 1e-4)
	short.Fixed = (short.Fixed + float64(kernels.Deviations*math.Sqrt(square[1]))) * float64(q.s.codec.FactorMax) * (1 + 1e-4)
	return short
}

// centroidSquare bounds Σh² of the roundings ±h of centroids. Query tokens whose best tokens of
// a document have the same centroid meet the same roundings e: together they have Σ_j (e_j·Σ_i
// w_i·q_ij)². However the query is divided among centroids, that is at most the sum of those
// Σ_j e_j²·w_i·q_ij·w_k·q_kj, over all pairs of tokens, that are above 0.
func (q *query) centroidSquare() (square float64) {
	s := q.s
	most := slices.Max(q.screen.c.most)
	if most == 0 {
		return 0
	}
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	lanes := (q.N + 31) &^ 31
	sc.lo, sc.hi = resize(sc.lo, lanes), resize(sc.hi, lanes)
	sc.floats, sc.rows = resize(sc.floats, fillRows*s.dim), resize(sc.rows, fillRows*q.Stride)
	for first := 0; first < q.N; first += fillRows {
		if q.ended != nil && q.ended() {
			return 0
		}
		n := min(fillRows, q.N-first)
		for r := range n { // of length 1, so that products do not leave the range of float32
			norm := max(q.ranges[first+r].norm, leastUnit)
			for j, e := range q.screen.c.most {
				sc.floats[r*s.dim+j] = float32(float64(q.Vectors[(first+r)*s.dim+j]) / norm * (e / most) * (e / most))
			}
		}
		s.loops.CentroidScores(sc.rows[:n*q.Stride], sc.floats[:n*s.dim], n, &q.QueryVectors, sc.lo, sc.hi, nil)
		for r := range n {
			w := float64(max(q.weights[first+r], 0)) * max(q.ranges[first+r].norm, leastUnit)
			for k, v := range sc.rows[r*q.Stride : r*q.Stride+q.N] {
				v := float64(v) + float64(s.dim+4)*eps*q.ranges[k].norm
				square += w * float64(max(q.weights[k], 0)) * max(v, 0)
			}
		}
	}
	return square * most * most
}

// spread is √Σh² of the roundings ±h of level Fast that query token i meets, those of
// centroids left out, and what has to be added in full: the rest, which is not known to
// cancel. Level Fine rounds the query too, which has only to be added to each h.
func (q *query) spread(i int, fast way) (spread, rest float64) {
	if spread, rest = q.residualSpread(i, fast); q.coarse() {
		t := &q.screen.tokens[i]
		spread, rest = math.Hypot(spread, t.spread), rest+t.rest
		if fast == byLevels || fast == byFloat {
			spread = math.Hypot(spread, roundUnit*q.wordUnit(i))
		}
	}
	return spread, rest
}

// residualSpread is spread but for the sums that words of S are made of, and for the
// roundings of words of S alone.
func (q *query) residualSpread(i int, fast way) (spread, rest float64) {
	s, r := q.s, &q.ranges[i]
	a := s.scaleBound()
	rest = 34 * eps * (r.norm*s.normMax() + a*r.abs)
	fine, fields := 0.0, 1.0 // level Fine: half a unit of the query; fields of a nibble
	if q.way(kernels.Fine) == byFineTables {
		fine = a * r.fine / 2
	} else {
		fine = a * r.unit[kernels.Fine] / 2 * s.wMax
		fields = max(4/float64(s.codec.Codebook.Nbits), 1)
	}
	all := math.Sqrt(float64(s.dim)) * fine
	switch fast {
	case byFloat:
		return 0, rest + float64(s.dim+8)*eps*a*r.abs
	case byLevels:
		return a*s.wMax*math.Sqrt(r.square) + all, rest
	case byTiles:
		t := &q.tile.tokens[i]
		if t.square == 0 {
			rest += t.error
		}
		if s.tiles.scales != nil {
			rest += 1.1 * t.unit
		}
		return math.Hypot(math.Sqrt(t.square)+all, math.Sqrt2*roundUnit*t.unit), rest
	}
	if s.scale16 != nil {
		rest += r.fast
	}
	h := r.fast/2 + fields*fine
	return math.Hypot(math.Sqrt(2*float64(s.rowBytes))*h, math.Sqrt2*roundUnit*r.fast), rest
}

// likeness tells how many query tokens are rounded alike.
type likeness struct {
	counter alike.Counter
	of      []float32 // of each token: as Counter.Count says
}

// chance is the share of components of unrelated tokens that may happen to be alike.
const chance = 1.0 / 32

// liken finds out how many query tokens are rounded alike: in tables, bytes or tiles,
// whose steps differ in size. If S is made of another rounding, the larger steps count.
func (q *query) liken(fast way) []float32 {
	s, l := q.s, &q.alike
	l.of, l.counter.Ended = resize(l.of, q.N), q.ended
	l.counter.Count(l.of, s.dim, chance, func(i, j int) alike.Code {
		steps := math.Abs(q.scaled(i, j))
		switch fast {
		case byLevels:
			steps *= 4 / q.ranges[i].unit[kernels.Fast]
		case byTiles:
			if steps *= 4; q.tile.tokens[i].grain > 0 {
				steps /= q.tile.tokens[i].grain
			}
		case byFloat:
			steps = math.Inf(1)
		default: // an entry is the sum of several, each with an error of its own
			steps *= s.wMax / q.ranges[i].fast
		}
		if unit := q.screen.unit(i); unit > 0 {
			steps = min(steps, 4*math.Abs(float64(q.Vectors[i*s.dim+j])*float64(q.screen.c.step[j]))/unit)
		}
		if !(steps < float64(alike.MaxCode)) {
			return alike.MaxCode
		}
		return alike.Code(steps)
	})
	return l.of
}
