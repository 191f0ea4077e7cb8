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
	numbers []byte // u16 a document: which entry it has; none if there is one
}

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
		bl.numbers = in.next(2 * int(bl.docs.GetCardinality()))
	}
	if n == 0 || in.end("") != nil {
		return nil, badBlock(h, i)
	}
	for i := range len(bl.numbers) / 2 {
		if int(bl.number(i)) >= n {
			return nil, badBlock(h, i)
		}
	}
	return bl, nil
}

// number is which entry the i-th document has.
func (b *block) number(i int) uint16 {
	if b.numbers == nil {
		return 0
	}
	return uint16(b.numbers[2*i]) | uint16(b.numbers[2*i+1])<<8
}

// visit visits the documents of the block with the numbers of their entries.
func (b *block) visit(fn func(entry int, ordinal uint32)) {
	i := 0
	for it := b.docs.Iterator(); it.HasNext(); i++ {
		fn(int(b.number(i)), it.Next())
	}
}

// add adds the documents of entries that pass to sure, and those of which it is not
// known to maybe. There is a truth for each entry.
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
