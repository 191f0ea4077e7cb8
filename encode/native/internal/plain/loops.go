package plain

import (
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

// Softmax turns each of m rows of n values, a multiple of 16, into
// e^(scale·(x − max)) over the sum of these.
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

// GELU applies x·Φ(x) to m rows of n values, a multiple of 16.
func GELU(x []float32, stride, m, n int) {
	for i := range m {
		row := x[i*stride:][:n]
		for j, v := range row {
			row[j] = GELUOf(v)
		}
	}
}

// GeGLU multiplies GELU of the first n values of each of m rows with the n
// values after them; n is a multiple of 16.
func GeGLU(x []float32, stride, m, n int) {
	for i := range m {
		row, gate := x[i*stride:][:n], x[i*stride+n:][:n]
		for j, v := range row {
			row[j] = float32(GELUOf(v) * gate[j])
		}
	}
}

// AddNorm adds r to x, for m rows of n values, a multiple of 16, and writes the
// layer norm of the sum to dst, which may be x. The three have one stride.
// inverse is 1/n.
func AddNorm(dst, x, r []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32) {
	for i := range m {
		row, add := x[i*stride:][:n], r[i*stride:][:n]
		for j := range row {
			row[j] += add[j]
		}
		normRow(dst[i*stride:][:n], row, gamma, beta, epsilon, inverse)
	}
}

// Norm is AddNorm without r.
func Norm(dst, x []float32, stride, m, n int, gamma, beta []float32, epsilon, inverse float32) {
	for i := range m {
		normRow(dst[i*stride:][:n], x[i*stride:][:n], gamma, beta, epsilon, inverse)
	}
}

func normRow(dst, row, gamma, beta []float32, epsilon, inverse float32) {
	var sums [Lanes]float32
	for j, v := range row {
		sums[j%Lanes] += v
	}
	mean := float32(Sum(&sums) * inverse)
	clear(sums[:])
	for j, v := range row {
		d := v - mean
		sums[j%Lanes] = floats.FMA(d, d, sums[j%Lanes])
	}
	f := 1 / float32(math.Sqrt(float64(floats.FMA(Sum(&sums), inverse, epsilon))))
	for j, v := range row {
		dst[j] = floats.FMA(float32(v-mean)*f, gamma[j], beta[j])
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
			top = max(top, abs(v))
		}
		scales[i] = top * QuantScale
		inverse := QuantTop / top
		for j, v := range row {
			out[j] = byte(math.Float32bits(floats.FMA(v, inverse, magic)))
		}
	}
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// Rotate turns pairs (x[j], x[j+half]) of each of heads parts of 2·half values
// of m rows by the angles whose cosines and sines the rows of cos and sin have,
// half values a row; half is a multiple of 16.
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
