// Package half converts between float32 and IEEE 754 binary16, one number or many.
package floats

import (
	"encoding/binary"
	"math"
)

// Float32 converts exactly.
func Float32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	bits := uint32(h&0x7fff) << 13
	if bits >= 0x0f800000 { // infinite, or none
		return math.Float32frombits(sign | 0x70000000 | bits)
	}
	// The exponent is 112 too small; the product is exact, of subnormal numbers too.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(bits)*0x1p112))
}

// Float16 rounds to the nearest, ties to even; values beyond the range become infinite.
func Float16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520 and above round to infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: the sum is the subnormal, rounded by the adder
		m := math.Float32frombits(b) + math.Float32frombits(0x3f000000)
		return sign | uint16(math.Float32bits(m)-0x3f000000)
	}
	b += 0xfff + (b>>13)&1
	return sign | uint16((b-0x38000000)>>13)
}

// DecodeFloat16 converts the first len(dst) little-endian halves of src. Of a NaN the bits beside
// its sign may differ from those of Float32.
func DecodeFloat16(dst []float32, src []byte) {
	_ = src[:2*len(dst)]
	n := decode(dst, src)
	for i := n; i < len(dst); i++ {
		dst[i] = Float32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// EncodeFloat16 rounds src to little-endian halves at the beginning of dst, as Float16 does, and
// reports whether all of them are finite. Of a NaN the bits beside its sign may differ.
func EncodeFloat16(dst []byte, src []float32) (finite bool) {
	_ = dst[:2*len(src)]
	n, most := encode(dst, src)
	for i := n; i < len(src); i++ {
		h := Float16(src[i])
		binary.LittleEndian.PutUint16(dst[2*i:], h)
		most = max(most, h&0x7fff)
	}
	return most < 0x7c00
}
