package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// MaxDocs is the maximum number of ordinals.
const MaxDocs = 1<<32 - 2

// ParseFloatType parses the type of the centroids in a header.
func ParseFloatType(s string) (kernels.FloatType, error) {
	for _, t := range []kernels.FloatType{kernels.BF16, kernels.F16, kernels.F32} {
		if t.String() == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("centroid type %q", s)
}

// CodecArray is one of the arrays that a codec may have in addition to its centroids.
type CodecArray struct {
	Key    []byte
	Values *[]float32 // the array; *Values is nil if the codec has none
	Len    int        // its required length
}

// CodecArrays returns the optional arrays of a codec. Centroids and codebook must be set, since they
// determine the lengths.
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

// Floats decodes the result of AppendFloats.
func Floats(b []byte) []float32 {
	values := make([]float32, len(b)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return values
}

// ErrChecksum means that the checksum of a value is not that of its key and bytes.
var ErrChecksum = errors.New("checksum mismatch")

// Castagnoli is the CRC table of all checksums.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChecksumSize is the number of bytes of the checksum after a value.
const ChecksumSize = 4

// Checksum returns the CRC32C of key and value. It covers the key, so that a value under a wrong key
// does not pass. For the values of a chunk or segment, key is the result of ChecksumKey.
func Checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, Castagnoli, key), Castagnoli, value)
}

// Seal appends the CRC32C of key and value to value.
func Seal(key, value []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, Checksum(key, value))
}

// Unseal returns the value without its checksum, and whether the checksum is right.
func Unseal(key, sealed []byte) ([]byte, bool) {
	n := len(sealed) - ChecksumSize
	if n < 0 {
		return nil, false
	}
	return sealed[:n:n], binary.LittleEndian.Uint32(sealed[n:]) == Checksum(key, sealed[:n])
}

// ChecksumKey returns the key that the checksum of a value in the bucket of a chunk or segment covers:
// the number of that, followed by the key of the value.
func ChecksumKey(number uint32, key []byte) []byte { return append(NumberKey(number), key...) }

// NumberKey returns the key of a chunk, a segment, a field run, or the payload of an ordinal.
func NumberKey(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// NumberFromKey is the inverse of NumberKey.
func NumberFromKey(key []byte) uint32 { return binary.BigEndian.Uint32(key) }

// IsValidID reports whether a value of the tree of ids has one of its two lengths.
func IsValidID(b []byte) bool {
	return len(b) == 4 || len(b) == 8 && binary.LittleEndian.Uint32(b[4:]) > 0
}

// AppendID appends the value of an id: its ordinal if n is 0; otherwise, for a document stored as
// passages, the range of n ordinals from ordinal on that contains them.
func AppendID(b []byte, ordinal, n uint32) []byte {
	b = binary.LittleEndian.AppendUint32(b, ordinal)
	if n > 0 {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// DecodeID decodes a valid value ([IsValidID]) of AppendID.
func DecodeID(b []byte) (ordinal, n uint32) {
	if len(b) == 8 {
		n = binary.LittleEndian.Uint32(b[4:])
	}
	return binary.LittleEndian.Uint32(b), n
}
