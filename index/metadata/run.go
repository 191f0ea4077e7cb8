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
	formed  []uint32          // numbers of the fields that have values of other forms than plain ones
}

// fieldHead is a field of a run.
type fieldHead struct {
	number                  uint32
	present, numbers, texts roaring.Bitmap
	blocks                  []blockEnds
	inline                  [][]byte // the blocks, where they are in the head
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
	r.readFormed(&in)
	if !slices.IsSorted(r.names) || len(slices.Compact(slices.Clone(r.names))) != len(r.names) {
		in.failed = true
	}
	return r, in.end("head of a run")
}

// readFormed reads which fields have booleans, arrays or objects.
func (r *Run) readFormed(in *reader) {
	numbers := reader{b: in.bytes()}
	for len(numbers.b) > 0 {
		n := numbers.u32()
		numbers.failed = numbers.failed || int(n) >= len(r.names) || len(r.formed) > 0 && n <= r.formed[len(r.formed)-1]
		r.formed = append(r.formed, n)
	}
	in.failed = in.failed || numbers.failed
}

// forms are the documents whose value in a field is a boolean, an array or an object.
func (r *Run) forms(h *fieldHead) (*roaring.Bitmap, error) {
	docs := roaring.New()
	if _, ok := slices.BinarySearch(r.formed, h.number); !ok {
		return docs, nil
	}
	f := r.names[h.number]
	b, err := r.get(formsKey(f))
	if err != nil {
		return nil, err
	}
	in := reader{b: b}
	in.bitmap(docs)
	return docs, in.end(fmt.Sprintf("forms of field %s", f))
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
	in.bitmap(&h.present)
	in.bitmap(&h.numbers)
	in.bitmap(&h.texts)
	n := int(in.u32())
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
	return roaring.New()
}
