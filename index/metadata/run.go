package metadata

import (
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Run is a run that is read from storage. It is safe for concurrent use if get is.
type Run struct {
	get     func(key []byte) ([]byte, error)
	docs    roaring.Bitmap
	names   []condition.Field // sorted
	leftOut roaring.Bitmap    // documents with fields that are not in names
}

// fieldHead describes a field of a run.
type fieldHead struct {
	number      uint32
	present     roaring.Bitmap // documents with the field, also with null
	nulls       roaring.Bitmap // documents with null, also in an array
	unresolved  roaring.Bitmap // documents whose values are not stored: their payloads must be read
	numbers     roaring.Bitmap // documents with a number
	texts       roaring.Bitmap // documents with a text, or an object as text
	cutTexts    roaring.Bitmap // documents with a text that was cut
	arrays      roaring.Bitmap // documents with an array
	multiValued bool           // some document has several values
	blocks      []blockEnds
	valueBlocks int      // number of blocks of values; the others are of arrays
	inline      [][]byte // the blocks, if they are in the head
}

// bitmaps returns the bitmaps of the head, in the order of the format.
func (h *fieldHead) bitmaps() []*roaring.Bitmap {
	return []*roaring.Bitmap{&h.present, &h.nulls, &h.unresolved, &h.numbers, &h.texts, &h.cutTexts, &h.arrays}
}

// notNull returns the documents whose field is not null. The caller may change the bitmap.
func (h *fieldHead) notNull() *roaring.Bitmap {
	docs := roaring.Or(&h.numbers, &h.texts)
	docs.Or(&h.arrays)
	return docs
}

// blockEnds has the first and the last entry of a block.
type blockEnds struct{ first, last entry }

// Open reads the head of a run. get returns a value by its key, nil if the key is unknown; the
// value must not change while the run is in use.
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

// readField reads a field, nil if the run does not have it.
func (r *Run) readField(f condition.Field) (*fieldHead, error) {
	number, ok := slices.BinarySearch(r.names, f)
	if !ok {
		return nil, nil
	}
	b, err := r.get(fieldKey(f))
	if err != nil {
		return nil, err
	}
	head := &fieldHead{number: uint32(number)}
	in := byteReader{b: b}
	for _, docs := range head.bitmaps() {
		in.readBitmap(docs)
	}
	head.multiValued = in.readUint8() == 1
	head.valueBlocks = int(in.readUint32())
	n := int(in.readUint32())
	in.failed = in.failed || head.valueBlocks > n
	for range n {
		if in.failed {
			break
		}
		head.blocks = append(head.blocks, blockEnds{in.readEntry(), in.readEntry()})
	}
	if in.readUint8() == 1 {
		for range n {
			if in.failed {
				break
			}
			head.inline = append(head.inline, in.readSized())
		}
	}
	return head, in.checkDone(fmt.Sprintf("field %s", f))
}

// docsWithField returns the documents that have a field, also with null, and those for which the
// run cannot decide. Do not change the bitmaps.
func (r *Run) docsWithField(f condition.Field) (docs, undecided *roaring.Bitmap, err error) {
	head, err := r.readField(f)
	if err != nil {
		return nil, nil, err
	}
	if head == nil {
		return roaring.New(), r.undecidedDocs(f, nil), nil
	}
	return &head.present, r.undecidedDocs(f, head), nil
}

// undecidedDocs returns the documents for which the run cannot decide whether they have a field.
// head is that of the field, or nil if the run does not have it.
func (r *Run) undecidedDocs(f condition.Field, head *fieldHead) *roaring.Bitmap {
	switch {
	case len(f.Keys()) > maxDepth:
		return &r.docs
	case head == nil:
		return &r.leftOut
	}
	return &head.unresolved
}
