package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// ErrorBound implements [kernels.Query]. Over the query tokens it adds up |weight| ·
// the largest factor · the errors of: S in float32, (d+1)·2⁻²⁴·‖q‖·max‖c‖; the
// residual part, at level Fast a unit for each residual byte (two nibbles
// rounded to half a unit) and three for the roundings of S, scale and result,
// a unit being (max|S| + max a·max|⟨g ⊙ q, w⟩|) / (32764 − residual bytes), at
// level Fine the same with units of 2⁻³² of the range of ⟨g ⊙ q, w⟩ and the
// rounding of float32 arithmetic; with products of bytes, what rounding the
// query may have changed instead (levelQuery, tileError). The roundings mostly
// cancel: the errors that occur are some fifty times smaller.
func (q *query) ErrorBound(level kernels.Level) float32 {
	s := q.s
	const eps = 0x1p-24
	normMax, rowBytes := s.normMax(), float64(s.rowBytes)
	a := max(s.aMax, -s.aMin)
	if level != kernels.Fine && s.tiles != nil {
		q.ensure(builtFast, (*query).buildTiles)
	}
	var sum float64
	for i, r := range q.ranges {
		product := r.norm*normMax + a*r.abs // bounds the product and its parts
		e := (float64(s.dim) + 8) * eps * r.norm * normMax
		switch {
		case s.codec.Codebook.Uniform() && (q.byLevels(level) || level == kernels.Fine && q.tabled(fineGroup)):
			e += a*r.rounding[level] + 16*eps*product
		case level == kernels.Fine && q.tabled(fineGroup):
			e += a*r.fine*(rowBytes+3) + 12*eps*product
		case level != kernels.Fine && s.tiles != nil:
			e += q.tileError(i) + 8*eps*product
		case level != kernels.Fine && q.tabled(fastGroup):
			e += r.fast*(rowBytes+3) + 8*eps*product
		default:
			e += (float64(s.dim)+8)*eps*a*r.abs + 12*eps*product
		}
		sum += math.Abs(float64(q.weights[i])) * (e + eps*product)
	}
	return float32(sum * float64(s.codec.FactorMax) * (1 + 1e-4))
}
