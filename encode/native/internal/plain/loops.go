package plain

import (
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

// Softmax replaces each of m rows of n values, a multiple of 16, by
// e^(scale·(x − max)) divided by their sum.
func Softmax(x []float32, stride, m, n int, scale float32) {
	for i := range m {
		row := x[i*stride:][:n]
		top := float32(math.Inf(-1))
		for _, v := range row {
			top = max(top, v)
		}
		var sums [Lanes]float32
		for j, v := range row {
			p := Exp(float32(v-top) * scale)
			row[j] = p
			sums[j%Lanes] += p
		}
		inverse := 1 / Sum(&sums)
		for j := range row {
			row[j] *= inverse
		}
	}
}

// Quantize rounds m rows of n values, a multiple of 16, to bytes q with
// x ≈ q·scale and |q| ≤ 127, and writes the scale of each row. magic is Magic,
// and 128 more adds 128 to each byte.
func Quantize(dst []byte, dstStride int, scales, x []float32, stride, m, n int, magic float32) {
	for i := range m {
		row, out := x[i*stride:][:n], dst[i*dstStride:][:n]
		top := QuantMin
		for _, v := range row {
			top = max(top, absFloat32(v))
		}
		scales[i] = top * QuantScale
		inverse := QuantTop / top
		for j, v := range row {
			out[j] = byte(math.Float32bits(floats.FMA(v, inverse, magic)))
		}
	}
}

func absFloat32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// Rotate rotates the pairs (x[j], x[j+half]) of each head of m rows. A row has heads of 2·half values
// each. The rows of cos and sin have the cosines and sines of half angles; half is a multiple of 16.
func Rotate(x []float32, stride, m, heads, half int, cos, sin []float32) {
	for i := range m {
		c, s := cos[i*half:][:half], sin[i*half:][:half]
		for h := range heads {
			a, b := x[i*stride+2*h*half:][:half], x[i*stride+(2*h+1)*half:][:half]
			for j := range a {
				u, v := a[j], b[j]
				a[j] = floats.FMA(-v, s[j], float32(u*c[j]))
				b[j] = floats.FMA(u, s[j], float32(v*c[j]))
			}
		}
	}
}
