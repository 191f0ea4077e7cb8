package keywords

import (
	"bytes"
	"encoding/binary"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// The terms of a segment are stored in blocks that name their successor. So a reader notices if a
// page of the file lost some of its keys, instead of finding fewer terms. The key of a block is "t"
// and its first term (nothing for the first block). Its value has, with a checksum:
//
//	the first term of the next block (length as uvarint. 0 for the last block)
//	for each term: its length and its bytes, the length of its value + 1 and the value;
//	0 for a value that has a key of its own, "v" and the term
var (
	keyDocs     = []byte("d")
	blockPrefix = []byte("t")
	valuePrefix = []byte("v")
)

// Sizes of blocks. They are variables so that tests can have many blocks. Readers must not depend on
// them: a file may have been written with others.
var (
	blockBytes  = 1 << 11 // size from which on a block ends
	inlineBytes = 256     // size up to which a value is stored in its block
)

// prefixedKey returns the key of a block or of a value.
func prefixedKey(prefix, term []byte) []byte { return append(slices.Clone(prefix), term...) }

// dictWriter writes the terms of a segment in ascending order.
type dictWriter struct {
	segment uint32
	put     func(key, value []byte) error // writes to the segment; keeps both slices
	first   []byte                        // first term of the current block
	entries []byte                        // of the current block
}

// add writes a term. It does not keep value.
func (w *dictWriter) add(term, value []byte) error {
	if len(w.entries) >= blockBytes {
		if err := w.flush(term); err != nil {
			return err
		}
		w.first = slices.Clone(term)
	}
	w.entries = binary.AppendUvarint(w.entries, uint64(len(term)))
	w.entries = append(w.entries, term...)
	if len(value) <= inlineBytes {
		w.entries = binary.AppendUvarint(w.entries, uint64(len(value)+1))
		w.entries = append(w.entries, value...)
		return nil
	}
	w.entries = binary.AppendUvarint(w.entries, 0)
	return w.put(prefixedKey(valuePrefix, term), slices.Clone(value))
}

// flush ends the block before the next term. nil ends the dictionary.
func (w *dictWriter) flush(next []byte) error {
	b := binary.AppendUvarint(make([]byte, 0, len(w.entries)+len(next)+10), uint64(len(next)))
	b = append(append(b, next...), w.entries...)
	w.entries = w.entries[:0]
	key := prefixedKey(blockPrefix, w.first)
	return w.put(key, withChecksum(segmentKey(w.segment, key), b))
}

// dictReader reads the terms of a segment in ascending order.
type dictReader struct {
	segment uint32
	bucket  *bolt.Bucket
	cursor  *bolt.Cursor
	next    []byte // first term of the block after the current one
	entries []byte // of the current block, after the current term
	term    []byte // nil at the end
	value   []byte // nil if it has a key of its own
}

// readDict returns a reader at the first term that is equal to from or follows it.
func readDict(b *bolt.Bucket, segment uint32, from []byte) (*dictReader, error) {
	r := &dictReader{segment: segment, bucket: b, cursor: b.Cursor()}
	key := prefixedKey(blockPrefix, from)
	k, v := r.cursor.Seek(key)
	if !bytes.Equal(k, key) {
		k, v = r.cursor.Prev()
		if k == nil { // Seek found no key at or after it
			k, v = r.cursor.Last()
		}
	}
	if !bytes.HasPrefix(k, blockPrefix) || bytes.Compare(k, key) > 0 {
		return nil, ErrDamaged
	}
	if err := r.openBlock(k, v); err != nil {
		return nil, err
	}
	if len(r.next) > 0 && bytes.Compare(r.next, from) <= 0 {
		return nil, ErrDamaged
	}
	for {
		if err := r.advance(); err != nil || r.term == nil || bytes.Compare(r.term, from) >= 0 {
			return r, err
		}
	}
}

// openBlock verifies a block and starts to read it.
func (r *dictReader) openBlock(k, sealed []byte) error {
	b, ok := verifyChecksum(segmentKey(r.segment, k), sealed)
	if !ok {
		return ErrDamaged
	}
	if r.next, r.entries, ok = cutPrefixed(b, 0); !ok {
		return ErrDamaged
	}
	return nil
}

// advance moves to the next term.
func (r *dictReader) advance() error {
	for len(r.entries) == 0 {
		if len(r.next) == 0 {
			r.term, r.value = nil, nil
			return nil
		}
		k, v := r.cursor.Next()
		if !bytes.HasPrefix(k, blockPrefix) || !bytes.Equal(k[len(blockPrefix):], r.next) {
			return ErrDamaged
		}
		if err := r.openBlock(k, v); err != nil {
			return err
		}
	}
	var ok bool
	if r.term, r.entries, ok = cutPrefixed(r.entries, 0); !ok || len(r.term) == 0 {
		return ErrDamaged
	}
	if len(r.entries) > 0 && r.entries[0] == 0 {
		r.value, r.entries = nil, r.entries[1:]
		return nil
	}
	if r.value, r.entries, ok = cutPrefixed(r.entries, 1); !ok {
		return ErrDamaged
	}
	return nil
}

// currentList returns the list of the current term, and the key that its checksums cover.
func (r *dictReader) currentList() (key []byte, l storedList, err error) {
	k := prefixedKey(valuePrefix, r.term)
	value := r.value
	if value == nil {
		value = r.bucket.Get(k)
	}
	key = segmentKey(r.segment, k)
	l, err = openList(key, value)
	return key, l, err
}

// cutPrefixed splits bytes from b that follow their length plus extra, as a uvarint.
func cutPrefixed(b []byte, extra uint64) (cut, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n < extra || n-extra > uint64(len(b)-w) {
		return nil, nil, false
	}
	n -= extra
	return b[w : w+int(n) : w+int(n)], b[w+int(n):], true
}

// lookUpTerm returns the list of a term, and the key that its checksums cover.
func lookUpTerm(b *bolt.Bucket, segment uint32, term string) (key []byte, l storedList, ok bool, err error) {
	r, err := readDict(b, segment, []byte(term))
	if err != nil || string(r.term) != term {
		return nil, storedList{}, false, err
	}
	key, l, err = r.currentList()
	return key, l, err == nil, err
}
