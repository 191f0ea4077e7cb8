package wreck

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// span is the location of a value in the file.
type span struct{ offset, size int64 }

// leafPage is a page of keys and values, or the page of a small bucket within a value.
type leafPage struct {
	offset, end int64
	id          uint64 // the number of the page according to its header
}

// chunkPage is the leaf of a chunk, with its values: codes, docs, factors and residuals in this order.
type chunkPage struct {
	number    uint32 // the number according to the tree
	hasNumber bool   // the tree leads to the page, so that number is set
	values    [4]span
}

// foundValues is the values of a generation, or those that the tree does not lead to (strays).
type foundValues struct {
	values       map[string][]span // header, state, tombstones and the arrays of the codec
	chunks       []chunkPage
	ids, payload []leafPage
	idsBroken    bool // some ids cannot be read
}

func newFoundValues() *foundValues { return &foundValues{values: map[string][]span{}, idsBroken: true} }

// unknownKeys returns the values under unknown keys. A key may be unknown because it is damaged.
func (f *foundValues) unknownKeys() (values []span) {
	for k, list := range f.values {
		known := func(name []byte) bool { return string(name) == k }
		if !slices.ContainsFunc(layout.GenerationKeys, known) && !slices.ContainsFunc(layout.CodecKeys, known) {
			values = append(values, list...)
		}
	}
	return values
}

// role is the kind of content of a page according to the tree.
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

// bucketRoles maps the buckets of a generation to their roles.
var bucketRoles = map[string]role{
	string(layout.BucketCodec):    inCodec,
	string(layout.BucketChunks):   inChunks,
	string(layout.BucketIDs):      inIDs,
	string(layout.BucketPayload):  inPayload,
	string(layout.BucketPostings): inPostings,
	string(layout.BucketFields):   inFields,
}

// parentBucket is the bucket that a page belongs to.
type parentBucket struct {
	role    role
	content *foundValues // of its generation, nil outside of one
	number  uint32       // of its chunk
}

// pageHead is the used fields of the header of a page.
type pageHead struct {
	id    uint64
	flags uint16
	count uint16
}

// readHead reads the header of the page at an offset.
func (w *Reader) readHead(offset int64) (pageHead, error) {
	var h [boltfile.PageHeaderSize]byte
	if _, err := w.readAt(h[:], offset); err != nil {
		return pageHead{}, err
	}
	ne := binary.NativeEndian
	return pageHead{ne.Uint64(h[:]), ne.Uint16(h[8:]), ne.Uint16(h[10:])}, nil
}

// noteLostPage adds a fault for a page of a bucket that cannot be read.
func (w *Reader) noteLostPage(p parentBucket, format string, args ...any) {
	if p.role == inIDs {
		p.content.idsBroken = true
	}
	w.noteFault(format, args...)
}

// walkTree visits a page of the tree and all pages below it. It notes and skips damaged ones.
func (w *Reader) walkTree(id uint64, p parentBucket, depth int) {
	switch {
	case id < 2 || id >= w.pages || depth > boltfile.MaxDepth:
		w.noteLostPage(p, "B+tree: page %d of %d", id, w.pages)
		return
	case w.reached.Has(id):
		w.noteLostPage(p, "B+tree: page %d is used twice", id)
		return
	}
	w.reached.Add(id)
	base := int64(id) * w.pageSize
	h, err := w.readHead(base)
	if err != nil {
		w.noteLostPage(p, "page %d: %v", id, err)
		return
	}
	if h.id != id {
		w.noteLostPage(p, "page %d says that it is page %d", id, h.id)
		if h.flags == boltfile.PageLeaf {
			w.misplacedPages = append(w.misplacedPages, leafPage{base, w.size, h.id})
		}
		return // pages below it are found among the strays
	}
	switch h.flags {
	case boltfile.PageBranch:
		elements := make([]byte, int(h.count)*boltfile.ElementSize)
		if _, err := w.readAt(elements, base+boltfile.PageHeaderSize); err != nil {
			w.noteLostPage(p, "page %d: %v", id, err)
			return
		}
		if h.count == 0 {
			w.noteLostPage(p, "page %d leads nowhere", id)
		}
		for ; len(elements) > 0; elements = elements[boltfile.ElementSize:] {
			w.walkTree(binary.NativeEndian.Uint64(elements[8:]), p, depth+1)
		}
	case boltfile.PageLeaf:
		w.walkLeaf(leafPage{base, w.size, h.id}, p, depth)
	default:
		w.noteLostPage(p, "page %d is of kind %#x", id, h.flags)
	}
}

// element is a key of a leaf page, and the location of its value.
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

// readElements reads the keys of a leaf page. It skips those that do not fit the page, and then
// returns an error in addition to the others.
func (w *Reader) readElements(l leafPage) ([]element, error) {
	// Read the page.
	head := make([]byte, min(w.pageSize, l.end-l.offset))
	n, err := w.readAt(head, l.offset)
	if n < boltfile.PageHeaderSize {
		return nil, err
	}
	// Determine the number of keys.
	ne := binary.NativeEndian
	count := int64(ne.Uint16(head[10:]))
	var fault error
	if actual := countByLayout(head[:n], count); actual != count {
		fault = fmt.Errorf("it says that it has %d keys, and has %d", count, actual)
		count = actual
	}
	if need := boltfile.PageHeaderSize + count*boltfile.ElementSize; need > int64(n) { // many keys, on several pages
		head = make([]byte, min(need, l.end-l.offset))
		if n, err = w.readAt(head, l.offset); err != nil && err != io.EOF {
			return nil, err
		}
	}
	head = head[:n]
	// Read each key.
	out := make([]element, 0, count)
	for i := range count {
		pos := boltfile.PageHeaderSize + i*boltfile.ElementSize
		if pos+boltfile.ElementSize > int64(len(head)) {
			fault = fmt.Errorf("%d keys do not fit", count)
			break
		}
		e := head[pos:]
		keyStart := pos + int64(ne.Uint32(e[4:]))
		keySize, valueSize := int64(ne.Uint32(e[8:])), int64(ne.Uint32(e[12:]))
		if keySize == 0 || keySize > maxKeyBytes || l.offset+keyStart+keySize+valueSize > l.end {
			fault = fmt.Errorf("key %d ends beyond it", i)
			continue
		}
		key := make([]byte, keySize)
		if keyStart+keySize <= int64(len(head)) {
			copy(key, head[keyStart:])
		} else if _, err := w.readAt(key, l.offset+keyStart); err != nil {
			fault = err
			continue
		}
		value := span{l.offset + keyStart + keySize, valueSize}
		out = append(out, element{key, value, ne.Uint32(e)&boltfile.LeafBucketFlag != 0})
	}
	return out, fault
}

// countByLayout returns the number of elements of a leaf page according to the offset of the first
// key, which directly follows the elements. The second element must confirm it; otherwise the result
// is count, the number in the header. Without a second element, only a count of 0 is corrected.
func countByLayout(head []byte, count int64) int64 {
	ne := binary.NativeEndian
	if len(head) < boltfile.PageHeaderSize+2*boltfile.ElementSize {
		return count
	}
	first, second := head[boltfile.PageHeaderSize:], head[boltfile.PageHeaderSize+boltfile.ElementSize:]
	firstKey := int64(ne.Uint32(first[4:]))                                            // from the first element on
	secondKey := firstKey + int64(ne.Uint32(first[8:])) + int64(ne.Uint32(first[12:])) // after the first value
	n := firstKey / boltfile.ElementSize
	confirmed := int64(ne.Uint32(second[4:]))+boltfile.ElementSize == secondKey // offsets count from their element
	if firstKey%boltfile.ElementSize != 0 || n == 0 || n > maxKeys || n > 1 && !confirmed || n == 1 && count != 0 {
		return count
	}
	return n
}

// walkLeaf sorts the values of a leaf page by their role, and visits its buckets.
func (w *Reader) walkLeaf(l leafPage, p parentBucket, depth int) {
	switch p.role {
	case inIDs:
		p.content.ids = append(p.content.ids, l)
		return
	case inPayload:
		p.content.payload = append(p.content.payload, l)
		return
	case inUnknown:
		w.misplacedPages = append(w.misplacedPages, l)
		return
	}
	elements, err := w.readElements(l)
	if err != nil {
		w.noteLostPage(p, "page at byte %d: %v", l.offset, err)
	}
	if p.role == inChunk {
		if c, ok := chunkFromElements(elements); ok {
			c.number, c.hasNumber = p.number, true
			p.content.chunks = append(p.content.chunks, c)
		} else {
			w.noteFault("chunk %d has %d values, not %d", p.number, len(elements), len(c.values))
		}
		return
	}
	for _, e := range elements {
		if e.bucket {
			w.walkBucket(l, e, w.childBucket(p, e.key), depth)
			continue
		}
		switch p.role {
		case inFrame:
			w.frame[string(e.key)] = e.value
		case inGeneration, inCodec:
			p.content.values[string(e.key)] = append(p.content.values[string(e.key)], e.value)
		}
	}
}

// childBucket returns the bucket with this key in p.
func (w *Reader) childBucket(p parentBucket, key []byte) parentBucket {
	switch p.role {
	case inRoot:
		if string(key) == string(layout.RootBucket) {
			return parentBucket{role: inFrame}
		}
		if n, ok := layout.GenerationNumber(key); ok && w.generations[n] == nil {
			w.generations[n] = newFoundValues()
			return parentBucket{role: inGeneration, content: w.generations[n]}
		}
	case inGeneration:
		if role, ok := bucketRoles[string(key)]; ok {
			if role == inIDs {
				p.content.idsBroken = false
			}
			return parentBucket{role: role, content: p.content}
		}
	case inChunks:
		if len(key) == 4 {
			return parentBucket{role: inChunk, content: p.content, number: layout.NumberFromKey(key)}
		}
	case inPostings, inFields:
		return p
	}
	w.noteFault("unknown bucket %s", layout.ValueName([][]byte{key}))
	return parentBucket{role: inUnknown}
}

// walkBucket visits the pages of the bucket in an element of a leaf.
func (w *Reader) walkBucket(l leafPage, e element, p parentBucket, depth int) {
	var b [boltfile.BucketHeaderSize]byte
	if e.value.size < boltfile.BucketHeaderSize {
		w.noteLostPage(p, "bucket of %d bytes", e.value.size)
		return
	}
	if _, err := w.readAt(b[:], e.value.offset); err != nil {
		w.noteLostPage(p, "bucket: %v", err)
		return
	}
	if root := binary.NativeEndian.Uint64(b[:]); root != 0 {
		if p.role != inUnknown { // its pages are found among the strays
			w.walkTree(root, p, depth+1)
		}
		return
	}
	if depth < boltfile.MaxDepth {
		end := min(e.value.offset+e.value.size, w.size)
		w.walkLeaf(leafPage{e.value.offset + boltfile.BucketHeaderSize, end, l.id}, p, depth+1)
	}
}

// chunkFromElements interprets four values as those of a chunk. It ignores their keys, which may be
// damaged: the checksums cover the original keys.
func chunkFromElements(elements []element) (c chunkPage, ok bool) {
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

// readValue returns the bytes of a value.
func (w *Reader) readValue(v span) ([]byte, error) {
	b := make([]byte, v.size)
	_, err := w.readAt(b, v.offset)
	return b, err
}

// readSealed reads and verifies a value.
func (w *Reader) readSealed(key []byte, v span) ([]byte, error) {
	b, err := w.readValue(v)
	if err != nil {
		return nil, err
	}
	b, ok := layout.Unseal(key, b)
	if !ok {
		return nil, layout.ErrChecksum
	}
	return b, nil
}
