package metadata

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// write gives out the values of the run, in no order of keys. The slices are the
// receiver's. Within the limit of fields, the values are the same in whatever order the
// documents came.
func (b *Builder) write(put func(key, value []byte) error) error {
	names := slices.Sorted(maps.Keys(b.fields))
	head, err := appendBitmap(nil, &b.docs)
	if err != nil {
		return err
	}
	head = binary.LittleEndian.AppendUint32(head, uint32(len(names)))
	for _, f := range names {
		head = appendBytes(head, []byte(f))
	}
	if head, err = appendBitmap(head, &b.leftOut); err != nil {
		return err
	}
	formed, err := b.writeForms(names, put)
	if err != nil {
		return err
	}
	if err := put(slices.Clone(keyHead), appendBytes(head, formed)); err != nil {
		return err
	}
	for i, f := range names {
		if err := b.fields[f].write(f, uint32(i), put); err != nil {
			return err
		}
	}
	return nil
}

// writeForms gives out, by field, the documents with values whose kind does not tell their
// form in JSON, and returns the numbers of the fields that have some.
func (b *Builder) writeForms(names []condition.Field, put func(key, value []byte) error) (formed []byte, err error) {
	for i, f := range names {
		forms := &b.fields[f].forms
		if forms.IsEmpty() {
			continue
		}
		formed = binary.LittleEndian.AppendUint32(formed, uint32(i))
		value, err := appendBitmap(nil, forms)
		if err != nil {
			return nil, err
		}
		if err := put(formsKey(f), value); err != nil {
			return nil, err
		}
	}
	return formed, nil
}

// write gives out the field: its head, and blocks unless they are so small that they
// are in the head.
func (c *column) write(f condition.Field, number uint32, put func(key, value []byte) error) error {
	order := make([]uint32, len(c.entries)) // entries in order
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int { return c.entries[i].compare(&c.entries[j]) })
	docs, ends := c.byEntry(order)

	var numbers, texts roaring.Bitmap
	var blocks [][]byte
	var directory []byte
	total := 0
	for lo := 0; lo < len(order); {
		hi := c.blockEnd(order, ends, lo)
		first, last := &c.entries[order[lo]], &c.entries[order[hi-1]]
		from := uint32(0)
		if lo > 0 {
			from = ends[lo-1]
		}
		kind := &numbers
		if first.Kind == condition.Text {
			kind = &texts
		}
		kind.AddMany(docs[from:ends[hi-1]])
		block, err := c.block(order[lo:hi], docs, from, ends[lo:hi])
		if err != nil {
			return err
		}
		directory = appendEntry(appendEntry(directory, first), last)
		blocks = append(blocks, block)
		total += len(block)
		lo = hi
	}
	var head []byte
	var err error
	for _, bm := range []*roaring.Bitmap{&c.present, &numbers, &texts} {
		if head, err = appendBitmap(head, bm); err != nil {
			return err
		}
	}
	head = binary.LittleEndian.AppendUint32(head, uint32(len(blocks)))
	head = append(head, directory...)
	inline := total <= inlineBytes
	if inline {
		head = append(head, 1)
		for _, block := range blocks {
			head = appendBytes(head, block)
		}
	} else {
		head = append(head, 0)
	}
	if err := put(fieldKey(f), head); err != nil || inline {
		return err
	}
	for i, block := range blocks {
		if err := put(blockKey(number, uint32(i)), block); err != nil {
			return err
		}
	}
	return nil
}

// byEntry sorts the documents by the place of their entry in the order, then by
// number, and returns where those of each entry end.
func (c *column) byEntry(order []uint32) (docs, ends []uint32) {
	place := make([]uint32, len(order))
	for p, e := range order {
		place[e] = uint32(p)
	}
	ends = make([]uint32, len(order))
	for _, e := range c.pairs {
		ends[place[e]]++
	}
	sum := uint32(0)
	next := make([]uint32, len(order))
	for p, n := range ends {
		next[p] = sum
		sum += n
		ends[p] = sum
	}
	docs = make([]uint32, len(c.docs))
	for i, e := range c.pairs {
		p := place[e]
		docs[next[p]] = c.docs[i]
		next[p]++
	}
	for p, end := range ends {
		from := uint32(0)
		if p > 0 {
			from = ends[p-1]
		}
		slices.Sort(docs[from:end])
	}
	return docs, ends
}

// blockEnd is where the block ends that begins with an entry: a block has entries of
// one kind, and of many documents one.
func (c *column) blockEnd(order, ends []uint32, lo int) int {
	from := uint32(0)
	if lo > 0 {
		from = ends[lo-1]
	}
	text := c.entries[order[lo]].Kind == condition.Text
	size := 0
	for hi := lo; hi < len(order); hi++ {
		e := &c.entries[order[hi]]
		size += len(e.Text) + 10
		if hi > lo && (ends[hi]-from > uint32(blockDocs) || size > blockBytes || (e.Kind == condition.Text) != text) {
			return hi
		}
	}
	return len(order)
}

// block encodes: the bitmap of the documents, the number of entries, the entries and,
// where there are several, which of them (u16) each document has.
func (c *column) block(order []uint32, docs []uint32, from uint32, ends []uint32) ([]byte, error) {
	all := docs[from:ends[len(ends)-1]]
	out, err := appendBitmap(nil, roaring.BitmapOf(all...))
	if err != nil {
		return nil, err
	}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(order)))
	for _, e := range order {
		out = appendEntry(out, &c.entries[e])
	}
	if len(order) == 1 {
		return out, nil
	}
	type pair struct{ doc, entry uint32 }
	pairs := make([]pair, 0, len(all))
	entry := uint32(0)
	for i, doc := range all {
		for from+uint32(i) >= ends[entry] {
			entry++
		}
		pairs = append(pairs, pair{doc, entry})
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Compare(a.doc, b.doc) })
	for _, p := range pairs {
		out = binary.LittleEndian.AppendUint16(out, uint16(p.entry))
	}
	return out, nil
}
