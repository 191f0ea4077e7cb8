package kernels

import (
	"encoding/binary"
	"math"

	"github.com/plaid-ir/plaid/internal/floats"
)

// FloatType is the encoding of stored centroids.
type FloatType uint8

// Centroids are bfloat16 in indexes that plaid trains; imported ones keep
// the type that their codes were computed against.
const (
	BF16 FloatType = iota + 1
	F16
	F32
)

// Size returns the number of bytes of one value.
func (t FloatType) Size() int {
	if t == F32 {
		return 4
	}
	return 2
}

func (t FloatType) String() string {
	switch t {
	case BF16:
		return "bf16"
	case F16:
		return "f16"
	case F32:
		return "f32"
	}
	return "unknown"
}

// Centroids is a K × Dim matrix, row-major, little-endian.
type Centroids struct {
	K, Dim int
	Type   FloatType
	Data   []byte
}

// Rows writes the centroids lo to hi as float32 into dst, (hi−lo)·Dim values.
func (c *Centroids) Rows(dst []float32, lo, hi int) {
	n := (hi - lo) * c.Dim
	dst = dst[:n]
	size := c.Type.Size()
	src := c.Data[lo*c.Dim*size : hi*c.Dim*size]
	switch c.Type {
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	case F16:
		floats.DecodeFloat16(dst, src)
	default:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}
