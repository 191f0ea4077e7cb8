package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
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
// token at a level, that of S left out: factor times the factor of the token, and
// fixed times the largest factor. The residual part is wrong, at level Fast, by a
// unit for each residual byte (two nibbles rounded to half a unit) and three for
// the roundings of S, scale and result, a unit being (max|S| + max a·max|⟨g ⊙ q,
// w⟩|) / (32764 − residual bytes); at level Fine by the same with units of 2⁻³² of
// the range of ⟨g ⊙ q, w⟩ and the rounding of float32 arithmetic; with products of
// bytes, by what rounding the query may have changed instead.
func (q *query) levelError(i int, level kernels.Level) (fixed, factor float64) {
	s, r := q.s, &q.ranges[i]
	a, rowBytes := s.scaleBound(), float64(s.rowBytes)
	product := r.norm*s.normMax() + a*r.abs // bounds the product and its parts
	switch q.way(level) {
	case byLevels, byLevelTables:
		factor = a*r.rounding[level] + 16*eps*product
	case byFineTables:
		factor = a*r.fine*(rowBytes+3) + 12*eps*product
	case byTiles:
		q.ensure(builtFast, (*query).buildTiles)
		t := &q.tile.tokens[i]
		factor = t.error + q.tileUnits()*t.unit + 8*eps*product
		fixed = roundUnit * t.unit
	case byFastTables:
		factor = r.fast*(rowBytes+3) + 8*eps*product
	default:
		factor = (float64(s.dim)+8)*eps*a*r.abs + 12*eps*product
	}
	return fixed, factor + eps*product
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

// Shortfall implements [kernels.Query]. Both levels use the same S, whose error
// does not count.
func (q *query) Shortfall(b kernels.Bound) kernels.Shortfall {
	fast := q.way(kernels.Fast)
	switch fast {
	case byFloat: // so is level Fine then
		return kernels.Shortfall{}
	case byTiles:
		q.ensure(builtFast, (*query).buildTiles)
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
	q.group()
	clear(q.alike.spread)
	for i := range q.ranges {
		w := math.Abs(float64(q.weights[i]))
		fixed, factor := q.levelError(i, kernels.Fast)
		_, fine := q.levelError(i, kernels.Fine)
		if b == kernels.Worst || q.weights[i] < 0 { // larger maxima lower the score
			short.Fixed += w * fixed
			short.Factor += w * (factor + fine)
			continue
		}
		spread, rest := q.spread(i, fast)
		g := &q.alike.spread[q.alike.of[i]]
		g[0] += w * spread
		if fixed > 0 {
			g[1] += w * fixed
		}
		short.Factor += w * rest
	}
	var square [2]float64
	for _, g := range q.alike.spread {
		square[0] += float64(g[0] * g[0])
		square[1] += float64(g[1] * g[1])
	}
	short.Factor = (short.Factor + float64(kernels.Deviations*math.Sqrt(square[0]))) * (1 + 1e-4)
	short.Fixed = (short.Fixed + float64(kernels.Deviations*math.Sqrt(square[1]))) * float64(q.s.codec.FactorMax) * (1 + 1e-4)
	return short
}

// spread is √Σh² of the roundings ±h of level Fast that query token i meets, and
// what has to be added in full: the rest, which is not known to cancel. Level Fine
// rounds the query too, which has only to be added to each h.
func (q *query) spread(i int, fast way) (spread, rest float64) {
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

// likeness tells which query tokens are rounded alike.
type likeness struct {
	of     []int32      // the group of each token
	spread [][2]float64 // scratch of shortfall, of each group
	// To find them: the tokens by key, the first component as a part of the largest,
	// which is at peak.
	order []int32
	key   []float32
	peak  []int32
}

// group puts query tokens together that point the same way, or the opposite one,
// to within the rounding of 8 bits: they are rounded alike, and their errors add up.
func (q *query) group() {
	l, dim := &q.alike, q.s.dim
	l.of, l.order, l.key, l.peak = resize(l.of, q.N), resize(l.order, q.N), resize(l.key, q.N), resize(l.peak, q.N)
	vector := func(i int32) []float32 { return q.Vectors[int(i)*dim : (int(i)+1)*dim] }
	for i := range l.of {
		v, peak := vector(int32(i)), 0
		for j, x := range v {
			if abs(x) > abs(v[peak]) {
				peak = j
			}
		}
		l.order[i], l.peak[i], l.key[i] = int32(i), int32(peak), 0
		if v[peak] != 0 {
			l.key[i] = v[0] / v[peak]
		}
	}
	slices.SortFunc(l.order, func(a, b int32) int { return cmp.Compare(l.key[a], l.key[b]) })
	groups := 0
	for at, i := range l.order {
		l.of[i] = int32(groups)
		for b := at - 1; b >= 0 && l.key[i]-l.key[l.order[b]] <= 2.0/levels8; b-- {
			j := l.order[b]
			if parallel(vector(j), vector(i), int(l.peak[j])) {
				l.of[i] = l.of[j]
				break
			}
		}
		if int(l.of[i]) == groups {
			groups++
		}
	}
	l.spread = resize(l.spread, groups)
}

// parallel reports whether y is a multiple of x, within 1/127 of the largest
// component of x, which is at peak.
func parallel(x, y []float32, peak int) bool {
	if x[peak] == 0 {
		return y[peak] == 0
	}
	ratio := y[peak] / x[peak]
	most := abs(y[peak]) / levels8
	for j := len(x) - 1; j >= 0; j-- {
		if !(abs(y[j]-x[j]*ratio) <= most) {
			return false
		}
	}
	return true
}

func abs(v float32) float32 { return max(v, -v) }
