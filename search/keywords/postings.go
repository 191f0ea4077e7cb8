package keywords

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// The value of a term in a segment:
//
//	length of the list u32
//	list        number of documents (uvarint), then blocks of up to 128 of them:
//	              last document − the one before the block (uvarint), bytes of the
//	              entries (uvarint), entries
//	CRC32C of key and list
//	positions   for each document: tf differences (uvarint)
//	CRC32C of key and positions
//
// An entry is the difference to the document before (uvarint), doubled. If the term occurs more
// than once, 1 is added, and tf follows (uvarint). Documents are numbered within the segment; the
// first difference is to −1.

const maxBlockDocs = 128

// blockDocs is the number of documents in a block. It is a variable so that tests can have many
// blocks; a file must be read with the value that it was written with.
var blockDocs = maxBlockDocs

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// withChecksum appends the checksum of a key and a value to the value.
func withChecksum(key, value []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, checksum(key, value))
}

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, value)
}

// verifyChecksum returns the value without its checksum, and whether the checksum matches.
func verifyChecksum(key, sealed []byte) ([]byte, bool) {
	n := len(sealed) - 4
	if n < 0 {
		return nil, false
	}
	return sealed[:n:n], binary.LittleEndian.Uint32(sealed[n:]) == checksum(key, sealed[:n])
}

// posting is a document that has a term.
type posting struct {
	doc uint32 // its number in the segment
	tf  uint32 // how often it has the term; at least 1
	pos []byte // its positions: tf differences
}

// encoder encodes the values of terms. It reuses its memory.
type encoder struct {
	value, entries, positions []byte
}

// encode returns the value for a key. Postings must ascend. The value is valid until the next call.
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

// storedList is the documents of a term, as stored.
type storedList struct {
	docs      int
	blocks    []byte
	positions []byte // with their checksum
}

// openList verifies the list of a value, without its positions.
func openList(key, value []byte) (storedList, error) {
	if len(value) < 4 {
		return storedList{}, ErrDamaged
	}
	n := uint64(binary.LittleEndian.Uint32(value)) + 4 // with its checksum
	if n > uint64(len(value)-4) {
		return storedList{}, ErrDamaged
	}
	b, ok := verifyChecksum(key, value[4:4+n])
	if !ok {
		return storedList{}, ErrDamaged
	}
	docs, w := binary.Uvarint(b)
	if w <= 0 || docs == 0 || docs > math.MaxInt32 {
		return storedList{}, ErrDamaged
	}
	return storedList{docs: int(docs), blocks: b[w:], positions: value[4+n:]}, nil
}

// listReader reads a list block by block.
type listReader struct {
	remaining     []byte // bytes of later blocks
	remainingDocs int    // documents of later blocks
	lastDoc       int64  // the last document of the current block
	blockLen      int    // documents in the current block
	docs          [maxBlockDocs]uint32
	tfs           [maxBlockDocs]uint32
}

// reader returns a reader that is before the first block.
func (l storedList) reader() listReader {
	return listReader{remaining: l.blocks, remainingDocs: l.docs, lastDoc: -1}
}

// nextBlock reads the next block that has documents of a set. nil means all documents. It returns
// false at the end. docs is the number of documents of the segment.
func (r *listReader) nextBlock(set []uint64, docs int) (bool, error) {
	for r.remainingDocs > 0 {
		n := min(blockDocs, r.remainingDocs)
		span, w := binary.Uvarint(r.remaining)
		if w <= 0 || span == 0 || span > uint64(docs) || r.lastDoc+int64(span) >= int64(docs) {
			return false, ErrDamaged
		}
		r.remaining = r.remaining[w:]
		size, w := binary.Uvarint(r.remaining)
		if w <= 0 || size > uint64(len(r.remaining)-w) {
			return false, ErrDamaged
		}
		entries := r.remaining[w : w+int(size)]
		r.remaining, r.remainingDocs, r.blockLen = r.remaining[w+int(size):], r.remainingDocs-n, n
		base := r.lastDoc
		r.lastDoc += int64(span)
		if set != nil && !anyBitIn(set, uint32(base+1), uint32(r.lastDoc)) {
			continue
		}
		return true, r.decodeBlock(entries, base)
	}
	r.blockLen = 0
	return false, nil
}

// decodeBlock decodes the entries of a block. before is the document before the block.
func (r *listReader) decodeBlock(b []byte, before int64) error {
	for i := range r.blockLen {
		d, w := binary.Uvarint(b)
		if w <= 0 || d < 2 {
			return ErrDamaged
		}
		b = b[w:]
		before += int64(d >> 1)
		if before > r.lastDoc {
			return ErrDamaged
		}
		r.docs[i], r.tfs[i] = uint32(before), 1
		if d&1 == 1 {
			tf, w := binary.Uvarint(b)
			if w <= 0 || tf == 0 || tf > math.MaxUint32 {
				return ErrDamaged
			}
			b = b[w:]
			r.tfs[i] = uint32(tf)
		}
	}
	if before != r.lastDoc || len(b) != 0 {
		return ErrDamaged
	}
	return nil
}

// postingReader reads a list with its positions, document by document.
type postingReader struct {
	listReader
	posting            // the current one
	positions   []byte // of later documents
	read        int    // documents read so far
	nextInBlock int    // index in the current block
}

// readPostings verifies the positions, and returns a reader of the list that shares their memory.
func (l storedList) readPostings(key []byte) (postingReader, error) {
	positions, ok := verifyChecksum(key, l.positions)
	if !ok {
		return postingReader{}, ErrDamaged
	}
	return postingReader{listReader: l.reader(), positions: positions}, nil
}

// advance moves to the next document, and returns false at the end. docs is the number of documents
// of the segment.
func (r *postingReader) advance(docs int) (bool, error) {
	if r.nextInBlock == r.blockLen {
		more, err := r.nextBlock(nil, docs)
		if err == nil && !more && len(r.positions) != 0 {
			err = ErrDamaged
		}
		if err != nil || !more {
			return false, err
		}
		r.nextInBlock = 0
	}
	end := 0
	for range r.tfs[r.nextInBlock] {
		for end < len(r.positions) && r.positions[end] >= 0x80 {
			end++
		}
		end++
		if end > len(r.positions) {
			return false, ErrDamaged
		}
	}
	r.posting = posting{doc: r.docs[r.nextInBlock], tf: r.tfs[r.nextInBlock], pos: r.positions[:end:end]}
	r.positions = r.positions[end:]
	r.nextInBlock++
	r.read++
	return true, nil
}

// appendPostings appends the whole list.
func (l storedList) appendPostings(dst []posting, key []byte, docs int) ([]posting, error) {
	r, err := l.readPostings(key)
	if err != nil {
		return nil, err
	}
	for {
		more, err := r.advance(docs)
		if err != nil || !more {
			return dst, err
		}
		dst = append(dst, r.posting)
	}
}

// appendPositions appends the positions of a posting.
func (p *posting) appendPositions(dst []uint32) []uint32 {
	position := uint64(0)
	for b := p.pos; len(b) > 0; {
		d, w := binary.Uvarint(b)
		if w <= 0 {
			return dst
		}
		position += d
		dst = append(dst, uint32(position))
		b = b[w:]
	}
	return dst
}

// Sets have one bit for each document of a segment.

func bitsetWords(docs int) int { return (docs + 63) / 64 }

func hasBit(set []uint64, d uint32) bool { return set[d/64]>>(d%64)&1 == 1 }

// anyBitIn reports whether a set has one of the documents from lo to hi.
func anyBitIn(set []uint64, lo, hi uint32) bool {
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
