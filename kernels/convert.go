package kernels

import (
	"encoding/binary"
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

func widenBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func widenF16(dst []float32, src []byte) {
	floats.DecodeFloat16(dst, src)
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
func F16ToF32(h uint16) float32 { return floats.Float32(h) }

// F16FromF32 rounds to the nearest binary16, ties to even; values beyond its
// range become infinite.
func F16FromF32(f float32) uint16 { return floats.Float16(f) }
