package keywords

import (
	"bytes"
	"encoding/binary"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// The terms of a segment are in blocks, so that a page of the file that lost some of
// its keys is noticed and not taken for terms that are not there. Key "t" and the first
// term of a block (nothing for the first block) has, with a checksum:
//
//	the first term of the next block (length as uvarint; 0: this is the last one)
//	for each term: its length and itself, the length of its value + 1 and the value;
//	0 for a value that has a key of its own, "v" and the term
//
// So a block says which terms there are from its key up to the next.
var (
	keyDocs     = []byte("d")
	blockPrefix = []byte("t")
	valuePrefix = []byte("v")
)

// Variables, so that tests have many blocks; a file may have been written with others.
var (
	blockBytes  = 1 << 11 // after which a block ends
	inlineBytes = 256     // up to which a value is in its block
)

func prefixedKey(prefix, term []byte) []byte { return append(slices.Clone(prefix), term...) }

// dictWriter writes the terms of a segment in their order.
type dictWriter struct {
	segment uint32
	put     func(key, value []byte) error
	first   []byte // of the current block
	entries []byte
}

// add writes a term. The value is not kept.
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

// flush ends the block, and without a term to come the dictionary.
func (w *dictWriter) flush(next []byte) error {
	b := binary.AppendUvarint(make([]byte, 0, len(w.entries)+len(next)+10), uint64(len(next)))
	b = append(append(b, next...), w.entries...)
	w.entries = w.entries[:0]
	key := prefixedKey(blockPrefix, w.first)
	return w.put(key, withChecksum(segmentKey(w.segment, key), b))
}

// dictReader reads the terms of a segment from some place on.
type dictReader struct {
	segment uint32
	b       *bolt.Bucket
	c       *bolt.Cursor
	next    []byte // first term of the block after the current one
	entries []byte // of the current block, after the current term
	term    []byte // nil: the end
	value   []byte // nil: it has a key of its own
}

// readDict reads from the first term on that is not before a given one.
func readDict(b *bolt.Bucket, segment uint32, from []byte) (*dictReader, error) {
	r := &dictReader{segment: segment, b: b, c: b.Cursor()}
	key := prefixedKey(blockPrefix, from)
	k, v := r.c.Seek(key)
	if !bytes.Equal(k, key) {
		k, v = r.c.Prev()
		if k == nil { // also where nothing is at or after the key
			k, v = r.c.Last()
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

// openBlock begins a block.
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

// advance goes to the next term.
func (r *dictReader) advance() error {
	for len(r.entries) == 0 {
		if len(r.next) == 0 {
			r.term, r.value = nil, nil
			return nil
		}
		k, v := r.c.Next()
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

// currentList is that of the current term, and the key of its checksums.
func (r *dictReader) currentList() (key []byte, l storedList, err error) {
	k := prefixedKey(valuePrefix, r.term)
	value := r.value
	if value == nil {
		value = r.b.Get(k)
	}
	key = segmentKey(r.segment, k)
	l, err = openList(key, value)
	return key, l, err
}

// cutPrefixed cuts bytes off that follow their length, which was written so much larger.
func cutPrefixed(b []byte, more uint64) (cut, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n < more || n-more > uint64(len(b)-w) {
		return nil, nil, false
	}
	n -= more
	return b[w : w+int(n) : w+int(n)], b[w+int(n):], true
}

// lookUpTerm finds the list of a term; key is that of its checksums.
func lookUpTerm(b *bolt.Bucket, segment uint32, term string) (key []byte, l storedList, ok bool, err error) {
	r, err := readDict(b, segment, []byte(term))
	if err != nil || string(r.term) != term {
		return nil, storedList{}, false, err
	}
	key, l, err = r.currentList()
	return key, l, err == nil, err
}
