package metadata

import (
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// block is a block of a field as it is read.
type block struct {
	entries []entry
	docs    roaring.Bitmap
	numbers []byte // u16 each: the entries of each document, in order; nil means that there is one entry
}

// another is set in the number of an entry if the next number is of the same document.
const another = 1 << 15

// value is the value of a block.
func (r *Run) value(h *fieldHead, i int) ([]byte, error) {
	if h.inline != nil {
		return h.inline[i], nil
	}
	return r.get(blockKey(h.number, uint32(i)))
}

// documents are those of a block.
func (r *Run) documents(h *fieldHead, i int) (*roaring.Bitmap, error) {
	b, err := r.value(h, i)
	if err != nil {
		return nil, err
	}
	in, docs := reader{b: b}, roaring.New()
	if in.bitmap(docs); in.failed {
		return nil, badBlock(h, i)
	}
	return docs, nil
}

func badBlock(h *fieldHead, i int) error {
	return fmt.Errorf("%w: block %d of field %d", ErrFormat, i, h.number)
}

func (r *Run) block(h *fieldHead, i int) (*block, error) {
	b, err := r.value(h, i)
	if err != nil {
		return nil, err
	}
	in, bl := reader{b: b}, &block{}
	in.bitmap(&bl.docs)
	n := int(in.u32())
	in.text = string(in.b)
	bl.entries = make([]entry, 0, min(n, len(in.b)))
	for range n {
		if in.failed {
			break
		}
		bl.entries = append(bl.entries, in.entry())
	}
	if n > 1 && !in.failed {
		bl.numbers = in.next(len(in.b) &^ 1)
	}
	if n == 0 || in.end("") != nil || !bl.sound() {
		return nil, badBlock(h, i)
	}
	return bl, nil
}

// sound reports whether each document has entries, in order.
func (b *block) sound() bool {
	if len(b.entries) == 1 {
		return true
	}
	docs, least := uint64(0), 0 // complete ones; the least entry that may be next
	for i := 0; i < len(b.numbers); i += 2 {
		n := int(b.numbers[i]) | int(b.numbers[i+1])<<8
		more := n&another != 0
		if n &^= another; n < least || n >= len(b.entries) {
			return false
		}
		if least = n + 1; !more {
			docs, least = docs+1, 0
		}
	}
	return least == 0 && docs == b.docs.GetCardinality()
}

// number is the i-th number.
func (b *block) number(i int) uint16 {
	return uint16(b.numbers[2*i]) | uint16(b.numbers[2*i+1])<<8
}

// visit visits the documents of the block with the numbers of their entries, in order.
func (b *block) visit(fn func(entry int, ordinal uint32)) {
	i := 0
	for it := b.docs.Iterator(); it.HasNext(); i++ {
		ordinal := it.Next()
		if b.numbers == nil {
			fn(0, ordinal)
			continue
		}
		n := b.number(i)
		for ; n&another != 0; n = b.number(i) {
			fn(int(n&^another), ordinal)
			i++
		}
		fn(int(n), ordinal)
	}
}

// add adds the documents of entries that pass to sure, and those of entries that may pass to maybe. There is a
// truth for each entry.
func (b *block) add(sure, maybe *roaring.Bitmap, passes []condition.Truth) {
	alike := true
	for _, p := range passes {
		alike = alike && p == passes[0]
	}
	if alike {
		switch passes[0] {
		case condition.True:
			sure.Or(&b.docs)
		case condition.Unknown:
			maybe.Or(&b.docs)
		}
		return
	}
	var passed, open []uint32
	b.visit(func(n int, ordinal uint32) {
		switch passes[n] {
		case condition.True:
			passed = append(passed, ordinal)
		case condition.Unknown:
			open = append(open, ordinal)
		}
	})
	sure.AddMany(passed)
	maybe.AddMany(open)
}
