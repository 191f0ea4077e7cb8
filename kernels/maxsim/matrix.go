package maxsim

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// Type is the type of the elements of a matrix.
type Type uint8

// The types. Rows of I8 and E4M3 have a scale.
const (
	F32  Type = iota + 1
	F16       // IEEE 754 binary16
	BF16      // the upper half of a float32
	I8        // scale·(x − zero)
	E4M3      // scale·x; 8-bit floats without infinities (OCP FP8), largest 448
	// Compressed is the form of an index: a code, a residual and a factor for each token.
	// See [ChunkBatch].
	Compressed
)

func (t Type) String() string {
	if t < F32 || t > Compressed {
		return "no type"
	}
	return [...]string{"float32", "float16", "bfloat16", "int8", "e4m3", "compressed"}[t-1]
}

// Size returns the number of bytes of an element; 1 for Compressed, whose elements are not
// stored one by one.
func (t Type) Size() int {
	switch t {
	case F32:
		return 4
	case F16, BF16:
		return 2
	}
	return 1
}

// Matrix has token vectors, [rows, Dim], row after row, in the slice of its type. Backends
// only read the slices.
type Matrix struct {
	Type Type
	Dim  int
	F32  []float32 // F32
	U16  []uint16  // F16 and BF16
	I8   []int8    // I8
	U8   []uint8   // E4M3
	// Scales has the scale of each row of I8 and E4M3. nil means that all are 1. Zeros has
	// the zero point of each row of I8. nil means that all are 0.
	Scales []float32
	Zeros  []int8
	// Codec and Chunk have the tokens of type Compressed.
	Codec *kernels.Codec
	Chunk *kernels.Chunk
}

// Float32 returns a matrix of float32.
func Float32(x []float32, dim int) Matrix { return Matrix{Type: F32, Dim: dim, F32: x} }

// Float16 returns a matrix of binary16.
func Float16(x []uint16, dim int) Matrix { return Matrix{Type: F16, Dim: dim, U16: x} }

// BFloat16 returns a matrix of bfloat16.
func BFloat16(x []uint16, dim int) Matrix { return Matrix{Type: BF16, Dim: dim, U16: x} }

// Int8 returns a matrix of bytes, with a scale for each row and, if zeros is not nil, a zero
// point for each row.
func Int8(x []int8, scales []float32, zeros []int8, dim int) Matrix {
	return Matrix{Type: I8, Dim: dim, I8: x, Scales: scales, Zeros: zeros}
}

// FP8 returns a matrix of e4m3 with a scale for each row.
func FP8(x []uint8, scales []float32, dim int) Matrix {
	return Matrix{Type: E4M3, Dim: dim, U8: x, Scales: scales}
}

// elements returns the number of elements: the length of the slice of the type.
func (m *Matrix) elements() int {
	switch m.Type {
	case F32:
		return len(m.F32)
	case F16, BF16:
		return len(m.U16)
	case I8:
		return len(m.I8)
	case Compressed:
		if m.Chunk == nil {
			return 0
		}
		return m.Chunk.Tokens() * m.Dim
	}
	return len(m.U8)
}

// Rows returns the number of rows.
func (m *Matrix) Rows() int { return m.elements() / max(m.Dim, 1) }

// Validate checks the type, the dimension and the lengths of the slices. Errors wrap
// [kernels.ErrShape].
func (m *Matrix) Validate() error {
	if m.Type < F32 || m.Type > Compressed {
		return shapeErrorf("elements of type %d", m.Type)
	}
	if m.Dim < 1 || m.Dim > kernels.MaxDim {
		return shapeErrorf("dimension %d is not in 1..%d", m.Dim, kernels.MaxDim)
	}
	if m.Type == Compressed {
		return m.validateCompressed()
	}
	if m.Codec != nil || m.Chunk != nil {
		return shapeErrorf("elements of type %s together with a codec or a chunk", m.Type)
	}
	n := m.elements()
	if n%m.Dim != 0 {
		return shapeErrorf("%d elements of type %s are not a multiple of the dimension %d", n, m.Type, m.Dim)
	}
	if len(m.F32)+len(m.U16)+len(m.I8)+len(m.U8) != n {
		return shapeErrorf("elements of other types than %s", m.Type)
	}
	rows := n / m.Dim
	if m.Scales != nil && (m.Type < I8 || len(m.Scales) != rows) {
		return shapeErrorf("%d scales for %d rows of type %s", len(m.Scales), rows, m.Type)
	}
	if m.Zeros != nil && (m.Type != I8 || len(m.Zeros) != rows) {
		return shapeErrorf("%d zero points for %d rows of type %s", len(m.Zeros), rows, m.Type)
	}
	return nil
}

// Scale returns the factor that turns the values of [Matrix.Widen] into those of the row.
func (m *Matrix) Scale(row int) float32 {
	if m.Scales == nil {
		return 1
	}
	return m.Scales[row]
}

// Widen writes the rows lo to hi to dst as float32, without their scales. Only values of
// Compressed are rounded.
func (m *Matrix) Widen(dst []float32, lo, hi int) {
	if m.Type == Compressed {
		m.decode(dst, lo, hi)
		return
	}
	lo, hi = lo*m.Dim, hi*m.Dim
	switch m.Type {
	case F32:
		copy(dst, m.F32[lo:hi])
	case F16:
		for i, v := range m.U16[lo:hi] {
			dst[i] = kernels.F16ToF32(v)
		}
	case BF16:
		for i, v := range m.U16[lo:hi] {
			dst[i] = math.Float32frombits(uint32(v) << 16)
		}
	case I8:
		for i := lo; i < hi; i += m.Dim {
			zero := int16(0)
			if m.Zeros != nil {
				zero = int16(m.Zeros[i/m.Dim])
			}
			for j, v := range m.I8[i : i+m.Dim] {
				dst[i-lo+j] = float32(int16(v) - zero)
			}
		}
	default:
		for i, v := range m.U8[lo:hi] {
			dst[i] = e4m3Values[v]
		}
	}
}

// Slice returns the rows lo to hi, in the same memory.
func (m *Matrix) Slice(lo, hi int) Matrix {
	s := *m
	a, b := lo*m.Dim, hi*m.Dim
	switch m.Type {
	case F32:
		s.F32 = m.F32[a:b]
	case F16, BF16:
		s.U16 = m.U16[a:b]
	case I8:
		s.I8 = m.I8[a:b]
	case Compressed:
		s.Chunk = sliceChunk(m.Codec, m.Chunk, lo, hi)
	default:
		s.U8 = m.U8[a:b]
	}
	if m.Scales != nil {
		s.Scales = m.Scales[lo:hi]
	}
	if m.Zeros != nil {
		s.Zeros = m.Zeros[lo:hi]
	}
	return s
}
