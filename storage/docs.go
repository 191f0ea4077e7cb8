package storage

import "encoding/binary"

// DocTable lists the documents of a chunk: ordinals First to First+len(IDs)−1.
// A document that was deleted and then dropped by compaction stays as a hole
// of length 0 with an empty id.
type DocTable struct {
	First   uint32
	Lengths []uint32
	IDs     []string
}

// MaxTokens is the largest length of a document.
const MaxTokens = 1<<31 - 1

// appendDocTable encodes: count and first ordinal (u32 each), lengths (u32
// each), ends of ids (u32 each), id bytes; little-endian.
func appendDocTable(dst []byte, t *DocTable) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(len(t.Lengths)))
	dst = le.AppendUint32(dst, t.First)
	for _, n := range t.Lengths {
		dst = le.AppendUint32(dst, n)
	}
	end := uint32(0)
	for _, id := range t.IDs {
		end += uint32(len(id))
		dst = le.AppendUint32(dst, end)
	}
	for _, id := range t.IDs {
		dst = append(dst, id...)
	}
	return dst
}
