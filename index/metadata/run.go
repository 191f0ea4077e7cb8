package metadata

import (
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Run is a run as it is read. It is safe for concurrent use if its values can be read so.
type Run struct {
	get     func(key []byte) ([]byte, error)
	docs    roaring.Bitmap
	names   []condition.Field // in order
	leftOut roaring.Bitmap    // documents with fields that are not among them
}

// fieldHead is a field of a run.
type fieldHead struct {
	number      uint32
	present     roaring.Bitmap // documents that have the field, be it null
	nulls       roaring.Bitmap // those with null, also in an array
	unresolved  roaring.Bitmap // documents whose payloads are read: nothing else is kept of them
	numbers     roaring.Bitmap // those with a number
	texts       roaring.Bitmap // those with a text, also of an object
	cutTexts    roaring.Bitmap // documents with a text whose beginning is kept
	arrays      roaring.Bitmap // those with an array
	multiValued bool           // one has several values
	blocks      []blockEnds
	valueBlocks int      // how many blocks are of values; the others are of arrays
	inline      [][]byte // the blocks, where they are in the head
}

// bitmaps are those of the head, in the order in which they are written.
func (h *fieldHead) bitmaps() []*roaring.Bitmap {
	return []*roaring.Bitmap{&h.present, &h.nulls, &h.unresolved, &h.numbers, &h.texts, &h.cutTexts, &h.arrays}
}

// notNull returns the documents whose field is not null. The bitmap is the caller's.
func (h *fieldHead) notNull() *roaring.Bitmap {
	docs := roaring.Or(&h.numbers, &h.texts)
	docs.Or(&h.arrays)
	return docs
}

// blockEnds are the first and the last entry of a block.
type blockEnds struct{ first, last entry }

// Open reads the head of a run. get returns a value by its key, nil if there is none;
// the value must stay as it is while the run is in use.
func Open(get func(key []byte) ([]byte, error)) (*Run, error) {
	b, err := get(keyHead)
	if err != nil {
		return nil, err
	}
	r, in := &Run{get: get}, byteReader{b: b}
	in.readBitmap(&r.docs)
	n := in.readUint32()
	for range n {
		if in.failed {
			break
		}
		r.names = append(r.names, condition.Field(in.readSized()))
	}
	in.readBitmap(&r.leftOut)
	if !slices.IsSorted(r.names) || len(slices.Compact(slices.Clone(r.names))) != len(r.names) {
		in.failed = true
	}
	return r, in.checkDone("head of a run")
}

// readField reads a field, nil if the run has none of the name.
func (r *Run) readField(f condition.Field) (*fieldHead, error) {
	number, ok := slices.BinarySearch(r.names, f)
	if !ok {
		return nil, nil
	}
	b, err := r.get(fieldKey(f))
	if err != nil {
		return nil, err
	}
	h := &fieldHead{number: uint32(number)}
	in := byteReader{b: b}
	for _, docs := range h.bitmaps() {
		in.readBitmap(docs)
	}
	h.multiValued = in.readUint8() == 1
	h.valueBlocks = int(in.readUint32())
	n := int(in.readUint32())
	in.failed = in.failed || h.valueBlocks > n
	for range n {
		if in.failed {
			break
		}
		h.blocks = append(h.blocks, blockEnds{in.readEntry(), in.readEntry()})
	}
	if in.readUint8() == 1 {
		for range n {
			if in.failed {
				break
			}
			h.inline = append(h.inline, in.readSized())
		}
	}
	return h, in.checkDone(fmt.Sprintf("field %s", f))
}

// docsWithField are documents that have a field, be it null, and those of which the run cannot
// tell. The bitmaps are not to be changed.
func (r *Run) docsWithField(f condition.Field) (docs, unknown *roaring.Bitmap, err error) {
	h, err := r.readField(f)
	if err != nil {
		return nil, nil, err
	}
	if h == nil {
		return roaring.New(), r.undecidedDocs(f, nil), nil
	}
	return &h.present, r.undecidedDocs(f, h), nil
}

// undecidedDocs are the documents of which the run cannot tell whether they have a field, given
// its head, nil if there is none.
func (r *Run) undecidedDocs(f condition.Field, h *fieldHead) *roaring.Bitmap {
	switch {
	case len(f.Keys()) > maxDepth:
		return &r.docs
	case h == nil:
		return &r.leftOut
	}
	return &h.unresolved
}
