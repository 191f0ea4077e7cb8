package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// MaxDocs is how many ordinals there are.
const MaxDocs = 1<<32 - 2

// ParseFloatType finds the type of the centroids by its name in the header.
func ParseFloatType(s string) (kernels.FloatType, error) {
	for _, t := range []kernels.FloatType{kernels.BF16, kernels.F16, kernels.F32} {
		if t.String() == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("centroid type %q", s)
}

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

// ErrChecksum: the checksum of a value is not that of its key and bytes.
var ErrChecksum = errors.New("checksum mismatch")

// Castagnoli is the table of the polynomial of all checksums.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChecksumSize is how many bytes follow a value.
const ChecksumSize = 4

// Checksum covers the key as well, so that a value found under another key does
// not pass. For the values of a chunk or segment, key is what ChecksumKey returns.
func Checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, Castagnoli, key), Castagnoli, value)
}

// Seal appends the CRC32C of key and value to value.
func Seal(key, value []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, Checksum(key, value))
}

// Unseal returns the value without its checksum, and whether that is right.
func Unseal(key, sealed []byte) ([]byte, bool) {
	n := len(sealed) - ChecksumSize
	if n < 0 {
		return nil, false
	}
	return sealed[:n:n], binary.LittleEndian.Uint32(sealed[n:]) == Checksum(key, sealed[:n])
}

// ChecksumKey is the key of a value in the bucket of a chunk or segment, for its
// checksum.
func ChecksumKey(number uint32, key []byte) []byte { return append(NumberKey(number), key...) }

// NumberKey is the key of what has a number: a chunk, a segment, the payload of an ordinal.
func NumberKey(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// NumberOfKey is the inverse of NumberKey.
func NumberOfKey(key []byte) uint32 { return binary.BigEndian.Uint32(key) }

// ValidID reports whether a value of the tree of ids has one of its two lengths.
func ValidID(b []byte) bool {
	return len(b) == 4 || len(b) == 8 && binary.LittleEndian.Uint32(b[4:]) > 0
}

// AppendID appends the value of an id: its ordinal, or, for a document stored as passages, the
// first of the n ordinals that these span.
func AppendID(b []byte, ordinal, n uint32) []byte {
	b = binary.LittleEndian.AppendUint32(b, ordinal)
	if n > 0 {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// SplitID decodes a valid value ([ValidID]); n is 0 for an ordinal.
func SplitID(b []byte) (ordinal, n uint32) {
	if len(b) == 8 {
		n = binary.LittleEndian.Uint32(b[4:])
	}
	return binary.LittleEndian.Uint32(b), n
}
