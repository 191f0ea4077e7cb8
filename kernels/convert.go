package kernels

import (
	"encoding/binary"
	"math"
)

func widenBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func widenF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// BF16FromF32 rounds to the nearest bfloat16, ties to even. NaN stays NaN.
func BF16FromF32(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// F16ToF32 converts an IEEE 754 binary16 value exactly.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	bits := uint32(h&0x7fff) << 13
	if bits >= 0x0f800000 { // infinite, or none
		return math.Float32frombits(sign | 0x70000000 | bits)
	}
	// The exponent is 112 too small; the product is exact, of subnormal numbers too.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(bits)*0x1p112))
}

// F16FromF32 rounds to the nearest binary16, ties to even; values beyond its
// range become infinite.
func F16FromF32(f float32) uint16 {
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
