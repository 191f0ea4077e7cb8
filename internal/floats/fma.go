// Package fma multiplies and adds with one rounding on any processor: plain Go with
// the bits of the instructions that loops in assembler use.
package floats

import "math"

// FMA is a·b + c, rounded once.
//
// The product of two float32 is exact in float64, and so is, but for one
// rounding, the sum. That rounding matters only where the sum is doubtful: then
// the float64 next to the exact sum whose last bit is odd decides, since it is
// never halfway between two float32.
func FMA(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if doubtful(s) {
		return fmaOdd(a, b, c)
	}
	return float32(s)
}

// doubtful says that s is halfway between two float32, or so near 0 that these
// are denser than elsewhere.
func doubtful(s float64) bool {
	u := math.Float64bits(s)
	return u<<35 == 1<<63 || u<<1 < (1023-126)<<53
}

// fmaOdd rounds the sum to odd first.
func fmaOdd(a, b, c float32) float32 {
	x, y := float64(a)*float64(b), float64(c)
	s := x + y
	// The error of a sum (Knuth's TwoSum), exact.
	z := s - x
	e := (x - (s - z)) + (y - z)
	if u := math.Float64bits(s); u&1 == 0 && e != 0 && e == e {
		if e > 0 == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}
