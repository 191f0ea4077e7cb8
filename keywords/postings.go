package keywords

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// The value of a term in a segment:
//
//	length of the list u32
//	list        documents (uvarint), then blocks of up to 128 of them:
//	              last document − the one before the block (uvarint), bytes of the
//	              entries (uvarint), entries
//	CRC32C of key and list
//	positions   of each document: as many differences (uvarint) as the term is there
//	CRC32C of key and positions
//
// An entry is the difference to the document before (uvarint), doubled, plus 1 if the
// term is there more than once; then how often follows (uvarint). Documents are
// numbered within the segment; the first difference is to −1.

const blockDocs = 128

var errDamaged = errors.New("damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal appends the checksum of a key and a value to the value.
func seal(key, value []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, checksum(key, value))
}

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, value)
}

func unseal(key, sealed []byte) ([]byte, bool) {
	n := len(sealed) - 4
	if n < 0 {
		return nil, false
	}
	return sealed[:n:n], binary.LittleEndian.Uint32(sealed[n:]) == checksum(key, sealed[:n])
}

// posting is a document of a term.
type posting struct {
	doc uint32 // in the segment
	tf  uint32 // how often the term is there; at least 1
	pos []byte // tf differences
}

// encoder makes the value of a term. It may be used again.
type encoder struct {
	value, entries, positions []byte
}

// encode returns the value for a key; postings are in ascending order. It is valid
// until the next call.
func (e *encoder) encode(key []byte, postings []posting) []byte {
	v := append(e.value[:0], 0, 0, 0, 0)
	v = binary.AppendUvarint(v, uint64(len(postings)))
	e.positions = e.positions[:0]
	before := int64(-1)
	for len(postings) > 0 {
		block := postings[:min(blockDocs, len(postings))]
		postings = postings[len(block):]
		base := before
		e.entries = e.entries[:0]
		for _, p := range block {
			d := uint64(int64(p.doc)-before) << 1
			if p.tf == 1 {
				e.entries = binary.AppendUvarint(e.entries, d)
			} else {
				e.entries = binary.AppendUvarint(e.entries, d|1)
				e.entries = binary.AppendUvarint(e.entries, uint64(p.tf))
			}
			before = int64(p.doc)
			e.positions = append(e.positions, p.pos...)
		}
		v = binary.AppendUvarint(v, uint64(before-base))
		v = binary.AppendUvarint(v, uint64(len(e.entries)))
		v = append(v, e.entries...)
	}
	binary.LittleEndian.PutUint32(v, uint32(len(v)-4))
	v = binary.LittleEndian.AppendUint32(v, checksum(key, v[4:]))
	v = append(v, e.positions...)
	e.value = binary.LittleEndian.AppendUint32(v, checksum(key, e.positions))
	return e.value
}

// list is the documents of a term, as they are stored.
type list struct {
	docs      int
	blocks    []byte
	positions []byte // sealed
}

// openList checks the list of a value, not the positions.
func openList(key, value []byte) (list, error) {
	if len(value) < 4 {
		return list{}, errDamaged
	}
	n := uint64(binary.LittleEndian.Uint32(value)) + 4 // with its checksum
	if n > uint64(len(value)-4) {
		return list{}, errDamaged
	}
	b, ok := unseal(key, value[4:4+n])
	if !ok {
		return list{}, errDamaged
	}
	docs, w := binary.Uvarint(b)
	if w <= 0 || docs == 0 || docs > math.MaxInt32 {
		return list{}, errDamaged
	}
	return list{docs: int(docs), blocks: b[w:], positions: value[4+n:]}, nil
}

// reader reads a list, block by block.
type reader struct {
	rest []byte
	left int
	last int64 // document before the block
	n    int
	docs [blockDocs]uint32
	tfs  [blockDocs]uint32
	seen int // documents before the block
}

func (l list) reader() reader { return reader{rest: l.blocks, left: l.docs, last: -1} }

// next reads the next block that has documents of a set; nil is the set of all. It
// returns false at the end. Documents are below docs.
func (r *reader) next(set []uint64, docs int) (bool, error) {
	for r.left > 0 {
		r.seen += r.n
		n := min(blockDocs, r.left)
		span, w := binary.Uvarint(r.rest)
		if w <= 0 || span == 0 || span > uint64(docs) || r.last+int64(span) >= int64(docs) {
			return false, errDamaged
		}
		r.rest = r.rest[w:]
		size, w := binary.Uvarint(r.rest)
		if w <= 0 || size > uint64(len(r.rest)-w) {
			return false, errDamaged
		}
		entries := r.rest[w : w+int(size)]
		r.rest, r.left, r.n = r.rest[w+int(size):], r.left-n, n
		base := r.last
		r.last += int64(span)
		if set != nil && !anyOf(set, uint32(base+1), uint32(r.last)) {
			continue
		}
		return true, r.block(entries, base)
	}
	r.seen += r.n
	r.n = 0
	return false, nil
}

func (r *reader) block(b []byte, before int64) error {
	for i := range r.n {
		d, w := binary.Uvarint(b)
		if w <= 0 || d < 2 {
			return errDamaged
		}
		b = b[w:]
		before += int64(d >> 1)
		if before > r.last {
			return errDamaged
		}
		r.docs[i], r.tfs[i] = uint32(before), 1
		if d&1 == 1 {
			tf, w := binary.Uvarint(b)
			if w <= 0 || tf == 0 || tf > math.MaxUint32 {
				return errDamaged
			}
			b = b[w:]
			r.tfs[i] = uint32(tf)
		}
	}
	if before != r.last || len(b) != 0 {
		return errDamaged
	}
	return nil
}

// all reads the whole list with its positions, which stay where they are.
func (l list) all(dst []posting, key []byte, docs int) ([]posting, error) {
	positions, ok := unseal(key, l.positions)
	if !ok {
		return nil, errDamaged
	}
	r := l.reader()
	for {
		more, err := r.next(nil, docs)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		for i := range r.n {
			end := 0
			for range r.tfs[i] {
				for end < len(positions) && positions[end] >= 0x80 {
					end++
				}
				end++
			}
			if end > len(positions) {
				return nil, errDamaged
			}
			dst = append(dst, posting{doc: r.docs[i], tf: r.tfs[i], pos: positions[:end:end]})
			positions = positions[end:]
		}
	}
	if len(positions) != 0 {
		return nil, errDamaged
	}
	return dst, nil
}

// appendPositions appends the places of a posting.
func (p *posting) appendPositions(dst []uint32) []uint32 {
	at := uint64(0)
	for b := p.pos; len(b) > 0; {
		d, w := binary.Uvarint(b)
		if w <= 0 {
			return dst
		}
		at += d
		dst = append(dst, uint32(at))
		b = b[w:]
	}
	return dst
}

// Sets are one bit a document of a segment.

func setSize(docs int) int { return (docs + 63) / 64 }

func has(set []uint64, d uint32) bool { return set[d/64]>>(d%64)&1 == 1 }

// anyOf tells whether a set has one of the documents from lo to hi.
func anyOf(set []uint64, lo, hi uint32) bool {
	first, last := lo/64, hi/64
	low, high := ^uint64(0)<<(lo%64), ^uint64(0)>>(63-hi%64)
	if first == last {
		return set[first]&low&high != 0
	}
	if set[first]&low != 0 || set[last]&high != 0 {
		return true
	}
	for _, w := range set[first+1 : last] {
		if w != 0 {
			return true
		}
	}
	return false
}
