package storage

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const crcSize = 4

// checksum covers the key as well, so that a value found under another key does
// not pass. For the values of a chunk or segment, key is what keyIn returns.
func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, value)
}

// seal appends the CRC32C of key and value to value.
func seal(key, value []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, checksum(key, value))
}

// unseal returns the value without its checksum, and whether that is right.
func unseal(key, sealed []byte) ([]byte, bool) {
	n := len(sealed) - crcSize
	if n < 0 {
		return nil, false
	}
	return sealed[:n:n], binary.LittleEndian.Uint32(sealed[n:]) == checksum(key, sealed[:n])
}

// keyIn is the key of a value in the bucket of a chunk or segment, for its
// checksum.
func keyIn(number uint32, key []byte) []byte { return append(key32(number), key...) }

func key32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
