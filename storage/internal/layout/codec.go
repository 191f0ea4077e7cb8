package layout

import (
	"encoding/binary"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// CodecArray is one of the arrays that a codec may have beside its centroids.
type CodecArray struct {
	Key    []byte
	Values *[]float32 // nil: it has none
	Len    int        // that it has to have
}

// CodecArrays are the arrays of a codec whose centroids and codebook are set.
func CodecArrays(c *kernels.Codec, cutoffs *[]float32) [3]CodecArray {
	return [3]CodecArray{
		{KeyCutoffs, cutoffs, 1<<c.Codebook.Nbits - 1},
		{KeyDimScale, &c.DimScale, c.Centroids.Dim},
		{KeyCentroidScale, &c.CentroidScale, c.Centroids.K},
	}
}

// AppendFloats appends the stored form of an array.
func AppendFloats(dst []byte, values []float32) []byte {
	for _, f := range values {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}

// Floats reads what AppendFloats appended.
func Floats(b []byte) []float32 {
	values := make([]float32, len(b)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return values
}
