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
	number  uint32
	present roaring.Bitmap // documents that have the field, be it null
	nulls   roaring.Bitmap // those with null, also in an array
	open    roaring.Bitmap // documents whose payloads are read: nothing else is kept of them
	numbers roaring.Bitmap // those with a number
	texts   roaring.Bitmap // those with a text, also of an object
	cut     roaring.Bitmap // documents with a text whose beginning is kept
	arrays  roaring.Bitmap // those with an array
	several bool           // one has several values
	blocks  []blockEnds
	values  int      // how many blocks are of values; the others are of arrays
	inline  [][]byte // the blocks, where they are in the head
}

// bitmaps are those of the head, in the order in which they are written.
func (h *fieldHead) bitmaps() []*roaring.Bitmap {
	return []*roaring.Bitmap{&h.present, &h.nulls, &h.open, &h.numbers, &h.texts, &h.cut, &h.arrays}
}

// given returns the documents whose field is not null. The bitmap is the caller's.
func (h *fieldHead) given() *roaring.Bitmap {
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
	r, in := &Run{get: get}, reader{b: b}
	in.bitmap(&r.docs)
	n := in.u32()
	for range n {
		if in.failed {
			break
		}
		r.names = append(r.names, condition.Field(in.bytes()))
	}
	in.bitmap(&r.leftOut)
	if !slices.IsSorted(r.names) || len(slices.Compact(slices.Clone(r.names))) != len(r.names) {
		in.failed = true
	}
	return r, in.end("head of a run")
}

// field reads a field, nil if the run has none of the name.
func (r *Run) field(f condition.Field) (*fieldHead, error) {
	number, ok := slices.BinarySearch(r.names, f)
	if !ok {
		return nil, nil
	}
	b, err := r.get(fieldKey(f))
	if err != nil {
		return nil, err
	}
	h := &fieldHead{number: uint32(number)}
	in := reader{b: b}
	for _, docs := range h.bitmaps() {
		in.bitmap(docs)
	}
	h.several = in.u8() == 1
	h.values = int(in.u32())
	n := int(in.u32())
	in.failed = in.failed || h.values > n
	for range n {
		if in.failed {
			break
		}
		h.blocks = append(h.blocks, blockEnds{in.entry(), in.entry()})
	}
	if in.u8() == 1 {
		for range n {
			if in.failed {
				break
			}
			h.inline = append(h.inline, in.bytes())
		}
	}
	return h, in.end(fmt.Sprintf("field %s", f))
}

// present are documents that have a field, be it null, and those of which the run cannot
// tell. The bitmaps are not to be changed.
func (r *Run) present(f condition.Field) (docs, unknown *roaring.Bitmap, err error) {
	h, err := r.field(f)
	if err != nil {
		return nil, nil, err
	}
	if h == nil {
		return roaring.New(), r.unknown(f, nil), nil
	}
	return &h.present, r.unknown(f, h), nil
}

// unknown are the documents of which the run cannot tell whether they have a field, given
// its head, nil if there is none.
func (r *Run) unknown(f condition.Field, h *fieldHead) *roaring.Bitmap {
	switch {
	case len(f.Keys()) > maxDepth:
		return &r.docs
	case h == nil:
		return &r.leftOut
	}
	return &h.open
}
