// Package floats has float32 arithmetic with the same bits on every processor: fused multiplication and
// addition, binary16, and norms of rows. It also requests the AMX registers from the operating system.
package floats

import (
	"encoding/binary"
	"math"
)

// FMA returns a·b + c, rounded once: plain Go with the bits of the instructions that assembler loops
// use.
//
// The product of two float32 is exact in float64, and the sum is rounded once. That rounding matters
// only if the sum is doubtful. Then the sum is rounded to odd instead: to the float64 next to the exact
// sum whose last bit is odd. It is never halfway between two float32, so the second rounding is right.
func FMA(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if doubtful(s) {
		return fmaOdd(a, b, c)
	}
	return float32(s)
}

// doubtful reports whether s is halfway between two float32, or in the range of subnormal float32.
func doubtful(s float64) bool {
	u := math.Float64bits(s)
	// A float64 has 29 more mantissa bits than a float32: halfway is a 1 followed by 28 zeros. Below
	// 2⁻¹²⁶ float32 is subnormal.
	return u<<35 == 1<<63 || u<<1 < (1023-126)<<53
}

// fmaOdd computes a·b + c, and rounds the float64 sum to odd before it rounds to float32.
func fmaOdd(a, b, c float32) float32 {
	x, y := float64(a)*float64(b), float64(c)
	s := x + y
	// The exact error of the sum (Knuth's TwoSum).
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

// Products writes the products of m rows of a, each of k values, with the n columns of b, which is
// stored row by row, to c. m must be even and n a multiple of 4. Each product is one chain of fused
// additions in the order of k, starting from the bias of the column.
func Products(c []float32, ldc int, a []float32, lda, m, k int, b, bias []float32, n int) {
	for i := 0; i < m; i += 2 {
		x, y := a[i*lda:][:k], a[(i+1)*lda:][:k]
		for j := 0; j < n; j += 4 {
			b0 := bias[j:][:4]
			p0, p1, p2, p3 := b0[0], b0[1], b0[2], b0[3]
			q0, q1, q2, q3 := p0, p1, p2, p3
			for t, u := range x {
				v, w := y[t], b[t*n+j:][:4]
				// FMA by hand: calls would take twice the time.
				u64, v64 := float64(u), float64(v)
				w0, w1, w2, w3 := float64(w[0]), float64(w[1]), float64(w[2]), float64(w[3])
				r0, r1, r2, r3 := u64*w0+float64(p0), u64*w1+float64(p1), u64*w2+float64(p2), u64*w3+float64(p3)
				s0, s1, s2, s3 := v64*w0+float64(q0), v64*w1+float64(q1), v64*w2+float64(q2), v64*w3+float64(q3)
				if doubtful(r0) || doubtful(r1) || doubtful(r2) || doubtful(r3) ||
					doubtful(s0) || doubtful(s1) || doubtful(s2) || doubtful(s3) {
					p0, p1, p2, p3 = fmaOdd(u, w[0], p0), fmaOdd(u, w[1], p1), fmaOdd(u, w[2], p2), fmaOdd(u, w[3], p3)
					q0, q1, q2, q3 = fmaOdd(v, w[0], q0), fmaOdd(v, w[1], q1), fmaOdd(v, w[2], q2), fmaOdd(v, w[3], q3)
					continue
				}
				p0, p1, p2, p3 = float32(r0), float32(r1), float32(r2), float32(r3)
				q0, q1, q2, q3 = float32(s0), float32(s1), float32(s2), float32(s3)
			}
			d, e := c[i*ldc+j:][:4], c[(i+1)*ldc+j:][:4]
			d[0], d[1], d[2], d[3] = p0, p1, p2, p3
			e[0], e[1], e[2], e[3] = q0, q1, q2, q3
		}
	}
}

// Float32 converts a binary16 exactly.
func Float32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	bits := uint32(h&0x7fff) << 13
	if bits >= 0x0f800000 { // infinite, or not a number
		return math.Float32frombits(sign | 0x70000000 | bits)
	}
	// The exponent is 112 too small (bias 15 against 127). The product is exact, also for subnormal
	// numbers.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(bits)*0x1p112))
}

// Float16 rounds to the nearest binary16, ties to even. Values beyond the range become infinite.
func Float16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520 and above round to infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: adding 0.5 makes the adder round to a subnormal
		m := math.Float32frombits(b) + math.Float32frombits(0x3f000000)
		return sign | uint16(math.Float32bits(m)-0x3f000000)
	}
	b += 0xfff + (b>>13)&1
	return sign | uint16((b-0x38000000)>>13)
}

// DecodeFloat16 converts the first len(dst) little-endian binary16 values of src. The payload of a
// NaN may differ from that of Float32.
func DecodeFloat16(dst []float32, src []byte) {
	_ = src[:2*len(dst)]
	n := decodeBlocks(dst, src)
	for i := n; i < len(dst); i++ {
		dst[i] = Float32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// EncodeFloat16 rounds src to little-endian binary16 values at the beginning of dst, as Float16
// does, and reports whether all of them are finite. The payload of a NaN may differ.
func EncodeFloat16(dst []byte, src []float32) (finite bool) {
	_ = dst[:2*len(src)]
	n, largest := encodeBlocks(dst, src)
	for i := n; i < len(src); i++ {
		h := Float16(src[i])
		binary.LittleEndian.PutUint16(dst[2*i:], h)
		largest = max(largest, h&0x7fff)
	}
	return largest < 0x7c00
}

// SquaredNorm returns the sum of the squares of x in float64. Every processor computes the same bits:
// four sums, each of every fourth value, which are then added in order. (Products are converted to
// float64 so that they are rounded: then compilers may not fuse them with the sum.)
func SquaredNorm(x []float32) float64 {
	var sum [4]float64
	blocks := len(x) / 4 * 4
	sumSquares(&sum, x[:blocks])
	for _, v := range x[blocks:] {
		f := float64(v)
		sum[0] += float64(f * f)
	}
	return sum[0] + sum[1] + sum[2] + sum[3]
}

// Finite reports whether all values are finite. It checks the sum of their squares, which float32
// values cannot overflow in float64.
func Finite(x []float32) bool {
	sum := SquaredNorm(x)
	return sum-sum == 0
}

// Masks of the exponents of a binary16 and of a bfloat16.
const (
	Exponent16  = 0x7c00
	ExponentB16 = 0x7f80
)

// FirstNotFinite16 returns the index of the first value of x whose exponent bits are all set, so that it
// is infinite or not a number. It returns len(x) if all are finite.
func FirstNotFinite16(x []uint16, exponent uint16) int {
	const lanes = 0x0001000100010001
	mask, lowest := uint64(exponent)*lanes, uint64(exponent&-exponent)*lanes
	const step = 8
	i := 0
	for ; i+step <= len(x); i += step {
		v := (*[step]uint16)(x[i:])
		a := uint64(v[0]) | uint64(v[1])<<16 | uint64(v[2])<<32 | uint64(v[3])<<48
		b := uint64(v[4]) | uint64(v[5])<<16 | uint64(v[6])<<32 | uint64(v[7])<<48
		// If all bits of the exponent are set, adding its lowest bit carries to the sign.
		if ((a&mask+lowest)|(b&mask+lowest))&(0x8000*lanes) != 0 {
			break
		}
	}
	for ; i < len(x); i++ {
		if x[i]&exponent == exponent {
			return i
		}
	}
	return i
}

// Scale multiplies each value of x in place.
func Scale(x []float32, by float64) {
	blocks := len(x) / 4 * 4
	scaleBlocks(x[:blocks], by)
	for j, v := range x[blocks:] {
		x[blocks+j] = float32(float64(v) * by)
	}
}

// sumSquaresPortable is the portable loop for a multiple of four values.
func sumSquaresPortable(sum *[4]float64, x []float32) {
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

// scalePortable is the portable loop of Scale.
func scalePortable(x []float32, by float64) {
	for j, v := range x {
		x[j] = float32(float64(v) * by)
	}
}
