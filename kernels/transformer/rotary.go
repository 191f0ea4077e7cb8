package transformer

import "math"

// Rotary has the angles of rotary positions (Su et al., RoFormer, 2021).
type Rotary struct {
	Half     int       // number of angles of a position: half the size of a head
	Cos, Sin []float32 // [positions, Half]
}

// NewRotary computes the angles as the Python library transformers does: frequencies and
// their products with positions are float32.
func NewRotary(theta float64, half, positions int) *Rotary {
	r := &Rotary{half, make([]float32, positions*half), make([]float32, positions*half)}
	for j := range half {
		exponent := float32(2*j) / float32(2*half)
		frequency := 1 / float32(math.Pow(theta, float64(exponent)))
		for p := range positions {
			sin, cos := sincos(float64(float32(p) * frequency))
			r.Sin[p*half+j], r.Cos[p*half+j] = float32(sin), float32(cos)
		}
	}
	return r
}

// sincos returns sine and cosine of x ≥ 0, to more digits than float32 has. The conversions
// keep compilers from fusing operations, so that every processor has the same tables.
func sincos(x float64) (sin, cos float64) {
	const (
		high = 1.57079632673412561417e+00 // the first 33 bits of π/2
		low  = 6.07710050650619224932e-11 // the next bits
	)
	n := math.Round(float64(x / (math.Pi / 2)))
	y := float64(float64(x-float64(n*high)) - float64(n*low)) // |y| ≤ π/4
	z := float64(y * y)
	// Taylor series; the first term left out is below 1e-13.
	sin, cos = 1, 1
	for k := 14; k > 0; k -= 2 {
		sin = float64(1 - float64(float64(z*sin)/float64(k*(k+1))))
		cos = float64(1 - float64(float64(z*cos)/float64(k*(k-1))))
	}
	sin = float64(sin * y)
	switch int64(n) & 3 {
	case 1:
		sin, cos = cos, -sin
	case 2:
		sin, cos = -sin, -cos
	case 3:
		sin, cos = -cos, sin
	}
	return sin, cos
}
