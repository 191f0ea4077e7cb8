package metadata

import (
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// valueBlock is a decoded block of a field.
type valueBlock struct {
	entries []entry
	docs    roaring.Bitmap
	numbers []byte // 16 bits each: the entries of each document, in order, nil if there is only one entry
}

// moreEntries is set in an entry number if the next number is for the same document.
const moreEntries = 1 << 15

// encodedBlock returns the encoded block i of a field.
func (r *Run) encodedBlock(head *fieldHead, i int) ([]byte, error) {
	if head.inline != nil {
		return head.inline[i], nil
	}
	return r.get(blockKey(head.number, uint32(i)))
}

// blockDocuments returns the documents of a block without decoding its entries.
func (r *Run) blockDocuments(head *fieldHead, i int) (*roaring.Bitmap, error) {
	encoded, err := r.encodedBlock(head, i)
	if err != nil {
		return nil, err
	}
	in, docs := byteReader{b: encoded}, roaring.New()
	if in.readBitmap(docs); in.failed {
		return nil, blockError(head, i)
	}
	return docs, nil
}

// blockError returns the error of a malformed block.
func blockError(head *fieldHead, i int) error {
	return fmt.Errorf("%w: block %d of field %d", ErrFormat, i, head.number)
}

// readBlock decodes block i of a field.
func (r *Run) readBlock(head *fieldHead, i int) (*valueBlock, error) {
	encoded, err := r.encodedBlock(head, i)
	if err != nil {
		return nil, err
	}
	in, block := byteReader{b: encoded}, &valueBlock{}
	in.readBitmap(&block.docs)
	count := int(in.readUint32())
	in.text = string(in.b)
	block.entries = make([]entry, 0, min(count, len(in.b))) // a damaged count allocates no more than the data
	for range count {
		if in.failed {
			break
		}
		block.entries = append(block.entries, in.readEntry())
	}
	if count > 1 && !in.failed {
		block.numbers = in.readBytes(len(in.b) &^ 1)
	}
	if count == 0 || in.checkDone("") != nil || !block.isValid() {
		return nil, blockError(head, i)
	}
	return block, nil
}

// isValid reports whether each document has entries, in ascending order.
func (b *valueBlock) isValid() bool {
	if len(b.entries) == 1 {
		return true
	}
	docs, minEntry := uint64(0), 0 // complete documents; the lowest entry that may come next
	for i := 0; i < len(b.numbers); i += 2 {
		n := int(b.numbers[i]) | int(b.numbers[i+1])<<8
		more := n&moreEntries != 0
		if n &^= moreEntries; n < minEntry || n >= len(b.entries) {
			return false
		}
		if minEntry = n + 1; !more {
			docs, minEntry = docs+1, 0
		}
	}
	return minEntry == 0 && docs == b.docs.GetCardinality()
}

// entryNumber returns the i-th number.
func (b *valueBlock) entryNumber(i int) uint16 {
	return uint16(b.numbers[2*i]) | uint16(b.numbers[2*i+1])<<8
}

// visitPairs calls visit with the documents of the block and each of their entries, in order.
func (b *valueBlock) visitPairs(visit func(entry int, ordinal uint32)) {
	i := 0
	for it := b.docs.Iterator(); it.HasNext(); i++ {
		ordinal := it.Next()
		if b.numbers == nil {
			visit(0, ordinal)
			continue
		}
		n := b.entryNumber(i)
		for ; n&moreEntries != 0; n = b.entryNumber(i) {
			visit(int(n&^moreEntries), ordinal)
			i++
		}
		visit(int(n), ordinal)
	}
}

// addPassing adds the documents of entries that pass to sure, and those of entries that may pass to
// maybe. passes has a truth for each entry.
func (b *valueBlock) addPassing(sure, maybe *roaring.Bitmap, passes []condition.Truth) {
	// If all entries have the same truth, add all documents at once.
	allEqual := true
	for _, p := range passes {
		allEqual = allEqual && p == passes[0]
	}
	if allEqual {
		switch passes[0] {
		case condition.True:
			sure.Or(&b.docs)
		case condition.Unknown:
			maybe.Or(&b.docs)
		}
		return
	}
	var passed, undecided []uint32
	b.visitPairs(func(n int, ordinal uint32) {
		switch passes[n] {
		case condition.True:
			passed = append(passed, ordinal)
		case condition.Unknown:
			undecided = append(undecided, ordinal)
		}
	})
	sure.AddMany(passed)
	maybe.AddMany(undecided)
}
