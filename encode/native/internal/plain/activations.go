package plain

import (
	"github.com/plaid-ir/plaid/internal/floats"
)

// GELULinear and GELUCubic are the arguments of [Swish] for the GELU that approximates Φ by a
// hyperbolic tangent: ½·(1 + tanh y) = σ(2y) with y = √(2/π)·(x + 0.044715·x³).
const (
	GELULinear float32 = 2 * 0.797884560802865355879892
	GELUCubic  float32 = 2 * 0.797884560802865355879892 * 0.044715
)

// GELU applies x·Φ(x) to m rows of n values, a multiple of 16.
func GELU(x []float32, stride, m, n int) { applyToRows(x, stride, m, n, GELUOf) }

// Swish applies x·σ(x·(linear + cubic·x²)) with the logistic function σ. Neither factor may be negative.
func Swish(x []float32, stride, m, n int, linear, cubic float32) {
	applyToRows(x, stride, m, n, func(v float32) float32 {
		y := clampToExp(v)
		return v / logistic(float32(y*floats.FMA(float32(y*y), cubic, linear)))
	})
}

// Tanh applies tanh x = 2·σ(2x) − 1.
func Tanh(x []float32, stride, m, n int) {
	applyToRows(x, stride, m, n, func(v float32) float32 {
		v = clampToExp(v)
		return float32(2/logistic(float32(v+v))) - 1
	})
}

// ReLU replaces negative values by 0.
func ReLU(x []float32, stride, m, n int) {
	applyToRows(x, stride, m, n, func(v float32) float32 { return max(v, 0) })
}

// Gate multiplies the first n values of each of m rows with the n values after them.
func Gate(x []float32, stride, m, n int) {
	for i := range m {
		row, gate := x[i*stride:][:n], x[i*stride+n:][:n]
		for j := range row {
			row[j] *= gate[j]
		}
	}
}

// applyToRows replaces each value of m rows of n values by f of it.
func applyToRows(x []float32, stride, m, n int, f func(float32) float32) {
	for i := range m {
		row := x[i*stride:][:n]
		for j, v := range row {
			row[j] = f(v)
		}
	}
}

// clampToExp clamps x to the range where [Exp] is not 0, and squares are finite.
func clampToExp(x float32) float32 { return max(min(x, -ExpMin), ExpMin) }

// logistic returns 1/σ(x).
func logistic(x float32) float32 { return 1 + Exp(min(-x, -ExpMin)) }
