package metadata

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/condition"
)

// Builder gathers the fields of documents for a run. The zero value is ready.
type Builder struct {
	docs     roaring.Bitmap
	fields   map[condition.Field]*column
	overflow bool // something is beyond the limits
	bytes    int64
}

// column is a field of the documents of a run.
type column struct {
	present roaring.Bitmap // documents that have the field, be it null
	numbers map[string]uint32
	entries []entry  // distinct, as they came
	of      []uint32 // the entry of each pair,
	docs    []uint32 // and its document
}

// Bytes is about the memory that the builder holds.
func (b *Builder) Bytes() int64 { return b.bytes }

// Empty reports whether the run would cover no document.
func (b *Builder) Empty() bool { return b.docs.IsEmpty() }

// Overflow reports whether something was left out because of the limits.
func (b *Builder) Overflow() bool { return b.overflow }

// Docs are the documents that the run will cover, not to be changed.
func (b *Builder) Docs() *roaring.Bitmap { return &b.docs }

// Add covers a document. A payload that is no JSON object has no fields.
func (b *Builder) Add(ordinal uint32, payload []byte) {
	b.docs.Add(ordinal)
	if len(payload) == 0 {
		return
	}
	d := condition.NewDocument(payload, "", ordinal)
	d.Fields(maxDepth, func(f condition.Field, v condition.Value) bool {
		if c := b.column(f); c != nil {
			c.present.Add(ordinal)
			if v.Kind != condition.Null {
				e := entryOf(v)
				b.bytes += c.add(&e, ordinal)
			}
		}
		return true
	})
}

// column is nil for a field that is beyond the limits.
func (b *Builder) column(f condition.Field) *column {
	c := b.fields[f]
	if c == nil {
		if len(b.fields) == maxFields || len(f) > maxFieldName {
			b.overflow = true
			return nil
		}
		if b.fields == nil {
			b.fields = map[condition.Field]*column{}
		}
		c = &column{numbers: map[string]uint32{}}
		b.fields[f] = c
		b.bytes += 1024
	}
	return c
}

// add returns about the memory that it took.
func (c *column) add(e *entry, ordinal uint32) (bytes int64) {
	var buf [2 + maxText + 8]byte
	key := appendEntry(buf[:0], e)
	n, there := c.numbers[string(key)]
	if !there {
		n = uint32(len(c.entries))
		c.numbers[string(key)] = n
		c.entries = append(c.entries, *e)
		bytes = int64(len(key)+len(e.Text)) + 128
	}
	c.of, c.docs = append(c.of, n), append(c.docs, ordinal)
	return bytes + 10
}

// Absorb takes in what a run has of the documents of keep, which the builder has not.
func (b *Builder) Absorb(r *Run, keep *roaring.Bitmap) error {
	keep = roaring.And(&r.docs, keep)
	b.docs.Or(keep)
	b.overflow = b.overflow || r.overflow
	for _, f := range r.names {
		h, err := r.field(f)
		if err != nil {
			return err
		}
		present := roaring.And(&h.present, keep)
		if present.IsEmpty() {
			continue
		}
		c := b.column(f)
		if c == nil {
			continue
		}
		c.present.Or(present)
		for i := range h.blocks {
			bl, err := r.block(h, i)
			if err != nil {
				return err
			}
			bl.each(func(e *entry, ordinal uint32) {
				if keep.Contains(ordinal) {
					b.bytes += c.add(e, ordinal)
				}
			})
		}
	}
	return nil
}

// Write gives out the values of the run, in no order of keys. The slices are the
// receiver's.
func (b *Builder) Write(put func(key, value []byte) error) error {
	names := slices.Sorted(maps.Keys(b.fields))
	head := []byte{0}
	if b.overflow {
		head[0] = 1
	}
	head, err := appendBitmap(head, &b.docs)
	if err != nil {
		return err
	}
	head = binary.LittleEndian.AppendUint32(head, uint32(len(names)))
	for _, f := range names {
		head = appendBytes(head, []byte(f))
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

func appendBytes(dst, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...)
}

func appendBitmap(dst []byte, bm *roaring.Bitmap) ([]byte, error) {
	bm = bm.Clone()
	bm.RunOptimize()
	b, err := bm.ToBytes()
	return appendBytes(dst, b), err
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
	for _, e := range c.of {
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
	for i, e := range c.of {
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
		if hi > lo && (ends[hi]-from > blockDocs || size > blockBytes || (e.Kind == condition.Text) != text) {
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
