package maxsim

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// maxE4M3 is the largest value of E4M3.
const maxE4M3 = 448

// e4m3Values are the values of the 256 codes: a sign, four bits of exponent with
// bias 7, three of fraction; NaN where all but the sign are 1 (OCP 8-bit floating
// point specification, section 5.2).
var e4m3Values = func() (v [256]float32) {
	for i := range v {
		exp, frac := i>>3&15, float64(i&7)
		x := math.Ldexp(8+frac, exp-10)
		switch {
		case i&0x7f == 0x7f:
			x = math.NaN()
		case exp == 0:
			x = math.Ldexp(frac, -9)
		}
		v[i] = float32(math.Copysign(x, float64(1-i>>7*2))) // 1, or −1 if the sign bit is set
	}
	return v
}()

// E4M3ToF32 converts a value without rounding.
func E4M3ToF32(v uint8) float32 { return e4m3Values[v] }

// e4m3FromF32 rounds to the nearest value, ties to even. Values beyond the largest become
// the largest; NaN stays NaN.
func e4m3FromF32(f float32) uint8 {
	sign := uint8(math.Float32bits(f) >> 24 & 0x80)
	a := math.Abs(float64(f))
	switch {
	case f != f:
		return sign | 0x7f
	case a >= maxE4M3:
		return sign | 0x7e
	case a < 1.0/64: // subnormal: multiples of 2⁻⁹; 8 of them are the first normal
		return sign | uint8(math.RoundToEven(a*512))
	}
	frac, exp := math.Frexp(a)              // frac in [½, 1)
	n := int(math.RoundToEven(frac*16)) - 8 // the fraction in eighths, 0 to 8
	return sign | uint8((exp-1+7)<<3+n)     // 8 eighths carry into the exponent
}

// QuantizeInt8 rounds rows of dim values to int8. The scale of a row makes its largest
// magnitude 127; rows of zeros have scale 0.
func QuantizeInt8(x []float32, dim int) Matrix {
	m := Int8(make([]int8, len(x)), make([]float32, len(x)/dim), nil, dim)
	for r := range m.Scales {
		row := x[r*dim : (r+1)*dim]
		inverse := setScale(&m.Scales[r], row, 127)
		for j, v := range row {
			m.I8[r*dim+j] = int8(math.RoundToEven(float64(v) * inverse))
		}
	}
	return m
}

// QuantizeInt8Affine rounds rows of dim values to int8, with a scale and a zero point for
// each row: they map the row's range, extended to include 0, to that of int8.
func QuantizeInt8Affine(x []float32, dim int) Matrix {
	n := len(x) / dim
	m := Int8(make([]int8, len(x)), make([]float32, n), make([]int8, n), dim)
	for r := range n {
		row := x[r*dim : (r+1)*dim]
		var lo, hi float64
		for _, v := range row {
			lo, hi = min(lo, float64(v)), max(hi, float64(v))
		}
		if lo == hi {
			continue
		}
		scale := float64(float32((hi - lo) / 255))
		zero := math.RoundToEven(-128 - lo/scale)
		m.Scales[r], m.Zeros[r] = float32(scale), int8(min(max(zero, -128), 127))
		for j, v := range row {
			m.I8[r*dim+j] = int8(min(max(math.RoundToEven(float64(v)/scale)+float64(m.Zeros[r]), -128), 127))
		}
	}
	return m
}

// QuantizeFP8 rounds rows of dim values to E4M3. The scale of a row makes its largest
// magnitude the largest of the type; rows of zeros have scale 0.
func QuantizeFP8(x []float32, dim int) Matrix {
	m := FP8(make([]uint8, len(x)), make([]float32, len(x)/dim), dim)
	for r := range m.Scales {
		row := x[r*dim : (r+1)*dim]
		inverse := setScale(&m.Scales[r], row, maxE4M3)
		for j, v := range row {
			m.U8[r*dim+j] = e4m3FromF32(float32(float64(v) * inverse))
		}
	}
	return m
}

// setScale sets the scale by which the largest magnitude of a row is divided to give target,
// and returns its inverse. Both are 0 for a row of zeros.
func setScale(scale *float32, row []float32, target float64) (inverse float64) {
	var largest float64
	for _, v := range row {
		largest = max(largest, math.Abs(float64(v)))
	}
	if *scale = float32(largest / target); *scale == 0 {
		return 0
	}
	return min(1/float64(*scale), target/largest) // a scale that was rounded down would exceed target
}

// ToFloat16 rounds rows of dim values to binary16.
func ToFloat16(x []float32, dim int) Matrix { return Float16(convertEach(x, kernels.F16FromF32), dim) }

// ToBFloat16 rounds rows of dim values to bfloat16.
func ToBFloat16(x []float32, dim int) Matrix {
	return BFloat16(convertEach(x, kernels.BF16FromF32), dim)
}

func convertEach(x []float32, convert func(float32) uint16) []uint16 {
	out := make([]uint16, len(x))
	for i, v := range x {
		out[i] = convert(v)
	}
	return out
}
