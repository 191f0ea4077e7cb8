package layout

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

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
