package metadata

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// write calls put with the keys and values of the run, in no particular order. put may keep the
// slices. Within the limit of fields, the values do not depend on the order of documents.
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
	if err := put(slices.Clone(keyHead), head); err != nil {
		return err
	}
	for i, f := range names {
		if err := b.fields[f].write(f, uint32(i), put); err != nil {
			return err
		}
	}
	return nil
}

// write calls put with the values of the field: its head and, unless they are small enough to be in
// the head, its blocks.
func (c *column) write(f condition.Field, number uint32, put func(key, value []byte) error) error {
	h := fieldHead{present: c.present, nulls: c.nulls, unresolved: c.unresolved}
	var blocks, directory [][]byte
	total := 0

	// Encode the blocks of values, then those of arrays, and collect their documents.
	for _, l := range []*valueList{&c.values, &c.arrays} {
		h.valueBlocks = len(blocks) // set to the final number before the arrays
		err := l.write(func(first, last *entry, docs []uint32, block []byte) {
			switch {
			case l == &c.arrays:
				h.arrays.AddMany(docs)
			case first.Kind == condition.Text:
				h.texts.AddMany(docs)
			default:
				h.numbers.AddMany(docs)
			}
			directory = append(directory, appendEntry(appendEntry(nil, first), last))
			blocks = append(blocks, block)
			total += len(block)
		})
		if err != nil {
			return err
		}
	}
	for i, e := range c.values.numbers {
		if c.values.entries[e].cut {
			h.cutTexts.Add(c.values.docs[i])
		}
	}

	// Encode the head: bitmaps, then the first and last entry of each block.
	notNull := roaring.Or(&h.numbers, &h.texts)
	h.multiValued = len(c.values.numbers) > int(notNull.GetCardinality())
	var head []byte
	var err error
	for _, docs := range h.bitmaps() {
		if head, err = appendBitmap(head, docs); err != nil {
			return err
		}
	}
	if h.multiValued {
		head = append(head, 1)
	} else {
		head = append(head, 0)
	}
	head = binary.LittleEndian.AppendUint32(head, uint32(h.valueBlocks))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(blocks)))
	head = append(head, bytes.Join(directory, nil)...)

	// Append the blocks to the head if they are small, or write them by themselves.
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

// write calls put with the blocks in order, their first and last entries, and their documents.
func (l *valueList) write(put func(first, last *entry, docs []uint32, block []byte)) error {
	order := make([]uint32, len(l.entries)) // numbers of the entries, sorted by value
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int { return l.entries[i].compare(&l.entries[j]) })
	docs, ends := l.sortByEntry(order)
	from := uint32(0)
	for lo := 0; lo < len(order); {
		hi := l.blockEnd(order, ends, lo)
		block, err := l.encodeBlock(order[lo:hi], docs, from, ends[lo:hi])
		if err != nil {
			return err
		}
		put(&l.entries[order[lo]], &l.entries[order[hi-1]], docs[from:ends[hi-1]], block)
		from, lo = ends[hi-1], hi
	}
	return nil
}

// sortByEntry sorts the documents by the position of their entry in order, then by ordinal. ends
// has the end of the documents of each entry.
func (l *valueList) sortByEntry(order []uint32) (docs, ends []uint32) {
	positionOf := make([]uint32, len(order))
	for p, e := range order {
		positionOf[e] = uint32(p)
	}
	ends = make([]uint32, len(order))
	for _, e := range l.numbers {
		ends[positionOf[e]]++
	}
	sum := uint32(0)
	next := make([]uint32, len(order))
	for p, n := range ends {
		next[p] = sum
		sum += n
		ends[p] = sum
	}
	docs = make([]uint32, len(l.docs))
	for i, e := range l.numbers {
		p := positionOf[e]
		docs[next[p]] = l.docs[i]
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

// blockEnd returns the end of the block that begins with entry lo: a block has entries of one kind,
// and an entry with many documents has a block of its own.
func (l *valueList) blockEnd(order, ends []uint32, lo int) int {
	from := uint32(0)
	if lo > 0 {
		from = ends[lo-1]
	}
	text := l.entries[order[lo]].Kind == condition.Text
	size := 0
	for hi := lo; hi < len(order); hi++ {
		e := &l.entries[order[hi]]
		size += len(e.Text) + 10 // tag, length, hash; see appendEntry
		if hi > lo && (ends[hi]-from > uint32(blockDocs) || size > blockBytes || (e.Kind == condition.Text) != text) {
			return hi
		}
	}
	return len(order)
}

// encodeBlock encodes the bitmap of the documents, the number of entries, the entries and, if there
// are several, the entry numbers (u16) of each document; [moreEntries] is set in all but the last
// number of a document. order are the entries of the block; the documents of order[i] end before
// docs[ends[i]], and those of order[0] begin at docs[from].
func (l *valueList) encodeBlock(order []uint32, docs []uint32, from uint32, ends []uint32) ([]byte, error) {
	ordinals := docs[from:ends[len(ends)-1]]
	out, err := appendBitmap(nil, roaring.BitmapOf(ordinals...))
	if err != nil {
		return nil, err
	}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(order)))
	for _, e := range order {
		out = appendEntry(out, &l.entries[e])
	}
	if len(order) == 1 {
		return out, nil
	}
	type pair struct{ doc, entry uint32 }
	pairs := make([]pair, 0, len(ordinals))
	entry := uint32(0)
	for i, doc := range ordinals {
		for from+uint32(i) >= ends[entry] {
			entry++
		}
		pairs = append(pairs, pair{doc, entry})
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.doc, b.doc), cmp.Compare(a.entry, b.entry))
	})
	for i, p := range pairs {
		n := uint16(p.entry)
		if i+1 < len(pairs) && pairs[i+1].doc == p.doc {
			n |= moreEntries
		}
		out = binary.LittleEndian.AppendUint16(out, n)
	}
	return out, nil
}
