// Package norm measures and scales rows of float32 in float64. Results are those of
// the plain loops, to the bit, whatever the processor has: four sums, of every fourth
// value each, which are then added in order. (A product is converted to float64 so that
// it is rounded: compilers may not fuse it with the sum.)
package floats

// SquaredNorm is the sum of the squares of x.
func SquaredNorm(x []float32) float64 {
	var sum [4]float64
	whole := len(x) / 4 * 4
	squares(&sum, x[:whole])
	for _, v := range x[whole:] {
		f := float64(v)
		sum[0] += float64(f * f)
	}
	return sum[0] + sum[1] + sum[2] + sum[3]
}

// Finite tells whether all values are numbers: then the sum of their squares is one, which
// no float32 values are too large for.
func Finite(x []float32) bool {
	sum := SquaredNorm(x)
	return sum-sum == 0
}

// Scale multiplies each value of x.
func Scale(x []float32, by float64) {
	whole := len(x) / 4 * 4
	scale(x[:whole], by)
	for j, v := range x[whole:] {
		x[whole+j] = float32(float64(v) * by)
	}
}

// squaresOf and scaleOf are the plain loops, for a multiple of four values.
func squaresOf(sum *[4]float64, x []float32) {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		s0 += float64(a * a)
		s1 += float64(b * b)
		s2 += float64(c * c)
		s3 += float64(d * d)
	}
	*sum = [4]float64{s0, s1, s2, s3}
}

func scaleOf(x []float32, by float64) {
	for j, v := range x {
		x[j] = float32(float64(v) * by)
	}
}
