package plain

import (
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

// Norm writes the layer norms of m rows of n values, a multiple of 16, to dst, which may
// be x. Both have the same stride. inverse is 1/n.
func Norm(dst, x []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32) {
	for i := range m {
		normRow(dst[i*stride:][:n], x[i*stride:][:n], gamma, beta, epsilon, inverse)
	}
}

// AddNorm adds r to x, and applies Norm to the sums.
func AddNorm(dst, x, r []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32) {
	for i := range m {
		addRow(x[i*stride:][:n], r[i*stride:][:n])
		normRow(dst[i*stride:][:n], x[i*stride:][:n], gamma, beta, epsilon, inverse)
	}
}

// RMS is Norm without subtracting a mean: rows are divided by their root mean squares.
func RMS(dst, x []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32) {
	for i := range m {
		scaleRow(dst[i*stride:][:n], x[i*stride:][:n], 0, gamma, beta, epsilon, inverse)
	}
}

// AddRMS adds r to x, and applies RMS to the sums.
func AddRMS(dst, x, r []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32) {
	for i := range m {
		addRow(x[i*stride:][:n], r[i*stride:][:n])
		scaleRow(dst[i*stride:][:n], x[i*stride:][:n], 0, gamma, beta, epsilon, inverse)
	}
}

// addRow adds r to x.
func addRow(x, r []float32) {
	for j, v := range r {
		x[j] += v
	}
}

// normRow writes the layer norm of a row.
func normRow(dst, row, gamma, beta []float32, epsilon, inverse float32) {
	var sums [Lanes]float32
	for j, v := range row {
		sums[j%Lanes] += v
	}
	scaleRow(dst, row, float32(Sum(&sums)*inverse), gamma, beta, epsilon, inverse)
}

// scaleRow divides the differences from the mean by the root of their mean square, and applies gamma and
// beta.
func scaleRow(dst, row []float32, mean float32, gamma, beta []float32, epsilon, inverse float32) {
	var sums [Lanes]float32
	for j, v := range row {
		d := v - mean
		sums[j%Lanes] = floats.FMA(d, d, sums[j%Lanes])
	}
	f := 1 / float32(math.Sqrt(float64(floats.FMA(Sum(&sums), inverse, epsilon))))
	for j, v := range row {
		dst[j] = floats.FMA(float32(v-mean)*f, gamma[j], beta[j])
	}
}
