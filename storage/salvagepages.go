package storage

import (
	"encoding/binary"
	"fmt"
	"io"
)

// span is a value in the file.
type span struct{ at, size int64 }

// leafPage is a page of keys and values, or the inline one of a small bucket.
type leafPage struct {
	at, end int64
	id      uint64 // of the page, as it says itself
}

// chunkPage is the leaf that holds the values of a chunk: codes, docs, factors
// and residuals in this order.
type chunkPage struct {
	number uint32 // by the tree
	named  bool
	values [4]span
}

// finds are the values of a generation, or those that no tree leads to.
type finds struct {
	values       map[string][]span // header, state, tombstones and the arrays of the codec
	chunks       []chunkPage
	ids, payload []leafPage
	idsBroken    bool // some ids cannot be read
}

func newFinds() *finds { return &finds{values: map[string][]span{}, idsBroken: true} }

// role is what the tree says of a page.
type role int

const (
	inRoot role = iota
	inFrame
	inGeneration
	inCodec
	inChunks
	inChunk
	inIDs
	inPayload
	inPostings
	inFields
	inUnknown
)

type place struct {
	role   role
	finds  *finds
	number uint32
}

type pageHead struct {
	id    uint64
	flags uint16
	count uint16
}

func (w *Wreck) head(at int64) (pageHead, error) {
	var h [pageHeader]byte
	if _, err := w.file.ReadAt(h[:], at); err != nil {
		return pageHead{}, err
	}
	ne := binary.NativeEndian
	return pageHead{ne.Uint64(h[:]), ne.Uint16(h[8:]), ne.Uint16(h[10:])}, nil
}

// lost notes that a page below a place cannot be read.
func (w *Wreck) lost(p place, format string, args ...any) {
	if p.role == inIDs {
		p.finds.idsBroken = true
	}
	w.note(format, args...)
}

// tree visits a page of the tree and all below it.
func (w *Wreck) tree(id uint64, p place, depth int) {
	switch {
	case id < 2 || id >= w.pages || depth > maxDepth:
		w.lost(p, "B+tree: page %d of %d", id, w.pages)
		return
	case bit(w.reached, id):
		w.lost(p, "B+tree: page %d is used twice", id)
		return
	}
	w.reached[id/64] |= 1 << (id % 64)
	base := int64(id) * w.page
	h, err := w.head(base)
	if err != nil {
		w.lost(p, "page %d: %v", id, err)
		return
	}
	if h.id != id {
		w.lost(p, "page %d says that it is page %d", id, h.id)
		if h.flags == pageLeaf {
			w.loose = append(w.loose, leafPage{base, w.size, h.id})
		}
		return // what it leads to is found among the strays
	}
	switch h.flags {
	case pageBranch:
		elements := make([]byte, int(h.count)*elementSize)
		if _, err := w.file.ReadAt(elements, base+pageHeader); err != nil {
			w.lost(p, "page %d: %v", id, err)
			return
		}
		if h.count == 0 {
			w.lost(p, "page %d leads nowhere", id)
		}
		for ; len(elements) > 0; elements = elements[elementSize:] {
			w.tree(binary.NativeEndian.Uint64(elements[8:]), p, depth+1)
		}
	case pageLeaf:
		w.leaf(leafPage{base, w.size, h.id}, p, depth)
	default:
		w.lost(p, "page %d is of kind %#x", id, h.flags)
	}
}

// element is a key of a leaf page, and where its value is.
type element struct {
	key    []byte
	value  span
	bucket bool
}

// Limits of bbolt.
const (
	maxKeyBytes = 32768
	maxKeys     = 0xffff // of a page
)

// elements reads the keys of a leaf page. What does not fit the page is passed
// over, and the error says so.
func (w *Wreck) elements(l leafPage) ([]element, error) {
	head := make([]byte, min(w.page, l.end-l.at))
	n, err := w.file.ReadAt(head, l.at)
	if n < pageHeader {
		return nil, err
	}
	ne := binary.NativeEndian
	count := int64(ne.Uint16(head[10:]))
	var bad error
	if n := countByLayout(head[:n], count); n != count {
		bad = fmt.Errorf("it says that it has %d keys, and has %d", count, n)
		count = n
	}
	if need := pageHeader + count*elementSize; need > int64(n) { // many keys, on several pages
		head = make([]byte, min(need, l.end-l.at))
		if n, err = w.file.ReadAt(head, l.at); err != nil && err != io.EOF {
			return nil, err
		}
	}
	head = head[:n]
	out := make([]element, 0, count)
	for i := range count {
		pos := pageHeader + i*elementSize
		if pos+elementSize > int64(len(head)) {
			bad = fmt.Errorf("%d keys do not fit", count)
			break
		}
		e := head[pos:]
		key := pos + int64(ne.Uint32(e[4:]))
		ksize, vsize := int64(ne.Uint32(e[8:])), int64(ne.Uint32(e[12:]))
		if ksize == 0 || ksize > maxKeyBytes || l.at+key+ksize+vsize > l.end {
			bad = fmt.Errorf("key %d ends beyond it", i)
			continue
		}
		k := make([]byte, ksize)
		if key+ksize <= int64(len(head)) {
			copy(k, head[key:])
		} else if _, err := w.file.ReadAt(k, l.at+key); err != nil {
			bad = err
			continue
		}
		out = append(out, element{k, span{l.at + key + ksize, vsize}, ne.Uint32(e)&leafBucketFlag != 0})
	}
	return out, bad
}

// countByLayout is the number of elements of a leaf page by where the first key
// is, right behind them, if the second one says so too; else the count that the
// page names.
func countByLayout(head []byte, count int64) int64 {
	ne := binary.NativeEndian
	if len(head) < pageHeader+2*elementSize {
		return count
	}
	first, second := head[pageHeader:], head[pageHeader+elementSize:]
	pos := int64(ne.Uint32(first[4:]))
	next := pos + int64(ne.Uint32(first[8:])) + int64(ne.Uint32(first[12:]))
	n := pos / elementSize
	if pos%elementSize != 0 || n == 0 || n > maxKeys || n > 1 && int64(ne.Uint32(second[4:]))+elementSize != next || n == 1 && count != 0 {
		return count
	}
	return n
}

// leaf sorts the values of a leaf page by what they are, and goes into the
// buckets.
func (w *Wreck) leaf(l leafPage, p place, depth int) {
	switch p.role {
	case inIDs:
		p.finds.ids = append(p.finds.ids, l)
		return
	case inPayload:
		p.finds.payload = append(p.finds.payload, l)
		return
	case inUnknown:
		w.loose = append(w.loose, l)
		return
	}
	elements, err := w.elements(l)
	if err != nil {
		w.lost(p, "page at byte %d: %v", l.at, err)
	}
	if p.role == inChunk {
		if c, ok := asChunk(elements); ok {
			c.number, c.named = p.number, true
			p.finds.chunks = append(p.finds.chunks, c)
		} else {
			w.note("chunk %d has %d values, not %d", p.number, len(elements), len(c.values))
		}
		return
	}
	for _, e := range elements {
		if e.bucket {
			w.bucket(l, e, w.below(p, e.key), depth)
			continue
		}
		switch p.role {
		case inFrame:
			w.frame[string(e.key)] = e.value
		case inGeneration, inCodec:
			p.finds.values[string(e.key)] = append(p.finds.values[string(e.key)], e.value)
		}
	}
}

// below is the role of a bucket.
func (w *Wreck) below(p place, key []byte) place {
	switch p.role {
	case inRoot:
		if string(key) == string(rootBucket) {
			return place{role: inFrame}
		}
		if n, ok := isGeneration(key); ok && w.gens[n] == nil {
			w.gens[n] = newFinds()
			return place{role: inGeneration, finds: w.gens[n]}
		}
	case inGeneration:
		for role, name := range map[role][]byte{
			inCodec: bucketCodec, inChunks: bucketChunks, inIDs: bucketIDs, inPayload: bucketPayload, inPostings: bucketPostings, inFields: bucketFields,
		} {
			if string(key) == string(name) {
				if role == inIDs {
					p.finds.idsBroken = false
				}
				return place{role: role, finds: p.finds}
			}
		}
	case inChunks:
		if len(key) == 4 {
			return place{role: inChunk, finds: p.finds, number: binary.BigEndian.Uint32(key)}
		}
	case inPostings, inFields:
		return p
	}
	w.note("unknown bucket %s", valueName([][]byte{key}))
	return place{role: inUnknown}
}

func (w *Wreck) bucket(l leafPage, e element, p place, depth int) {
	var b [bucketHeader]byte
	if e.value.size < bucketHeader {
		w.lost(p, "bucket of %d bytes", e.value.size)
		return
	}
	if _, err := w.file.ReadAt(b[:], e.value.at); err != nil {
		w.lost(p, "bucket: %v", err)
		return
	}
	if root := binary.NativeEndian.Uint64(b[:]); root != 0 {
		if p.role != inUnknown { // its pages are found among the strays
			w.tree(root, p, depth+1)
		}
		return
	}
	if depth < maxDepth {
		w.leaf(leafPage{e.value.at + bucketHeader, min(e.value.at+e.value.size, w.size), l.id}, p, depth+1)
	}
}

// asChunk takes four values for those of a chunk: their keys need not be right,
// since the checksums cover what the keys should be.
func asChunk(elements []element) (c chunkPage, ok bool) {
	if len(elements) != len(c.values) {
		return c, false
	}
	for i, e := range elements {
		if e.bucket {
			return c, false
		}
		c.values[i] = e.value
	}
	return c, true
}

// read returns the bytes of a value.
func (w *Wreck) read(v span) ([]byte, error) {
	b := make([]byte, v.size)
	_, err := w.file.ReadAt(b, v.at)
	return b, err
}

// open reads a value and checks its checksum.
func (w *Wreck) open(key []byte, v span) ([]byte, error) {
	b, err := w.read(v)
	if err != nil {
		return nil, err
	}
	b, ok := unseal(key, b)
	if !ok {
		return nil, errChecksum
	}
	return b, nil
}
