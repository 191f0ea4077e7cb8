package storage

import (
	"encoding/binary"
	"errors"
	"math"
)

// DocTable lists the documents of a chunk: ordinals First to First+len(IDs)−1.
// A document that was deleted and then dropped by compaction stays as a hole
// of length 0 with an empty id.
type DocTable struct {
	First   uint32
	Lengths []uint32
	IDs     []string
	// Payloads tells which documents have one, so that a lost one is noticed.
	Payloads []bool
}

// MaxTokens is the largest length of a document.
const MaxTokens = 1<<31 - 1

// payloadFlag is the bit of a stored length that says there is a payload.
const payloadFlag = 1 << 31

// appendDocTable encodes: count and first ordinal (u32 each), lengths (u32
// each, the highest bit set if there is a payload), ends of ids (u32 each), id bytes; little-endian.
func appendDocTable(dst []byte, t *DocTable) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(len(t.Lengths)))
	dst = le.AppendUint32(dst, t.First)
	for i, n := range t.Lengths {
		if t.Payloads[i] {
			n |= payloadFlag
		}
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

var errDocTable = errors.New("document table does not fit its counts")

// docTable is the encoded form, read in place.
type docTable struct {
	first   uint32
	count   int
	lengths []byte
	ends    []byte
	ids     []byte
}

func parseDocTable(v []byte) (docTable, error) {
	le := binary.LittleEndian
	if len(v) < 8 {
		return docTable{}, errDocTable
	}
	n := int(le.Uint32(v))
	if uint64(len(v)-8) < 8*uint64(n) || uint64(le.Uint32(v[4:]))+uint64(n) > MaxDocs {
		return docTable{}, errDocTable
	}
	t := docTable{first: le.Uint32(v[4:]), count: n, lengths: v[8 : 8+4*n], ends: v[8+4*n : 8+8*n], ids: v[8+8*n:]}
	prev := uint32(0)
	for i := range n {
		end := le.Uint32(t.ends[4*i:])
		if end < prev {
			return docTable{}, errDocTable
		}
		prev = end
	}
	if uint64(prev) != uint64(len(t.ids)) {
		return docTable{}, errDocTable
	}
	return t, nil
}

func (t *docTable) length(i int) uint32 {
	return binary.LittleEndian.Uint32(t.lengths[4*i:]) &^ payloadFlag
}

func (t *docTable) hasPayload(i int) bool {
	return binary.LittleEndian.Uint32(t.lengths[4*i:])&payloadFlag != 0
}

func (t *docTable) id(i int) string { return string(t.idBytes(i)) }

func (t *docTable) hasID(i int, id string) bool { return string(t.idBytes(i)) == id }

func (t *docTable) idBytes(i int) []byte {
	lo := uint32(0)
	if i > 0 {
		lo = binary.LittleEndian.Uint32(t.ends[4*i-4:])
	}
	return t.ids[lo:binary.LittleEndian.Uint32(t.ends[4*i:])]
}

// offsets returns the token offsets of the documents, one more than there are.
func (t *docTable) offsets() ([]uint32, error) {
	off := make([]uint32, t.count+1)
	sum := uint64(0)
	for i := range t.count {
		sum += uint64(t.length(i))
		if sum > math.MaxUint32 {
			return nil, errDocTable
		}
		off[i+1] = uint32(sum)
	}
	return off, nil
}

// markPayload changes in an encoded table whether document i has a payload.
func markPayload(table []byte, i int, has bool) {
	at := table[8+4*i:]
	n := binary.LittleEndian.Uint32(at) &^ payloadFlag
	if has {
		n |= payloadFlag
	}
	binary.LittleEndian.PutUint32(at, n)
}
