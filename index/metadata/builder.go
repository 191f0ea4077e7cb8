package metadata

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Builder gathers the fields of the documents of a change for its runs.
//
// Of a field that it keeps it keeps all: a field is left out for good once there is no
// room for it, and the documents that have it are remembered. So it is known of every
// document and field whether the run tells of it, whatever the order of documents.
type Builder struct {
	docs    roaring.Bitmap
	leftOut roaring.Bitmap // documents with fields that are not kept
	fields  map[condition.Field]*column
	bytes   int64 // about the memory that it holds
	limit   int64 // of them

	// keeps, where set, is asked in place of the limit of fields: see [Selector.Verify].
	keeps func(f condition.Field, ordinal uint32) bool
}

// column is a field of the documents of a run.
type column struct {
	present, nulls, open roaring.Bitmap // see [fieldHead]
	values               list           // also those in arrays
	arrays               list           // the texts of arrays
}

// list has the values of documents.
type list struct {
	numbers map[string]uint32
	entries []entry  // distinct, as they came
	pairs   []uint32 // the entry of each pair,
	docs    []uint32 // and its document
}

// Fields are those of a payload, with their values.
type Fields []field

type field struct {
	name           condition.Field
	null           bool // there is one, also in an array
	open           bool // the values are not all there
	values, arrays []entry
}

// ReadFields reads them. A payload that is no JSON object has none. The error is that of the
// context.
func ReadFields(ctx context.Context, payload []byte) (Fields, error) {
	if len(payload) == 0 {
		return nil, ctx.Err()
	}
	var all Fields
	place := placesOf(&all)
	more := 0 // values beyond the first ones of fields
	e := condition.NewEvaluation(ctx)
	e.Document(payload, "", 0).Fields(maxDepth, func(name condition.Field, v condition.Value, form condition.Form) bool {
		i := place(name)
		there := i < len(all)
		if !there {
			all = append(all, field{name: name})
		}
		f := &all[i]
		if there {
			more++
			f.open = f.open || more > maxMembers
		}
		switch {
		case f.open:
			f.values, f.arrays, f.null = nil, nil, false
		case v.Kind == condition.Null:
			f.null = true
		case form == condition.Whole:
			f.arrays = append(f.arrays, entryOf(v, condition.Nested))
		default:
			f.values = append(f.values, entryOf(v, form))
		}
		return true
	})
	for i := range all {
		all[i].settle(e)
	}
	return all, e.Err()
}

// placesOf returns a function that finds the place of a name, or the end for one that is not there
// and comes next.
func placesOf(all *Fields) func(name condition.Field) int {
	var places map[condition.Field]int // once there are many
	return func(name condition.Field) int {
		n := len(*all)
		switch {
		case n < 16:
			for i := range *all {
				if (*all)[i].name == name {
					return i
				}
			}
			return n
		case places == nil:
			places = make(map[condition.Field]int, 2*n)
			for i := range *all {
				places[(*all)[i].name] = i
			}
		}
		i, there := places[name]
		if !there {
			i = n
			places[name] = i
		}
		return i
	}
}

// settle leaves each value once, in order.
func (f *field) settle(e *condition.Evaluation) {
	for _, entries := range []*[]entry{&f.values, &f.arrays} {
		if len(*entries) < 2 {
			continue
		}
		steps := 0
		slices.SortFunc(*entries, func(a, b entry) int {
			if steps++; steps%4096 == 0 && e.Err() != nil {
				return 0
			}
			return a.compare(&b)
		})
		*entries = slices.CompactFunc(*entries, func(a, b entry) bool { return a.compare(&b) == 0 })
	}
	for i := range max(len(f.values), 1) - 1 {
		// 1 and 1.0 are one value of facets, which count entries.
		if a, b := &f.values[i], &f.values[i+1]; a.IsNumber() && b.Kind == condition.Real && a.Compare(b.Value) == 0 {
			f.open = true
		}
	}
	if f.open {
		f.values, f.arrays, f.null = nil, nil, false
	}
}

// Add covers a document. A payload that is no JSON object has no fields. The error is that
// of the context, and then the builder is of no use.
func (b *Builder) Add(ctx context.Context, ordinal uint32, payload []byte) error {
	fields, err := ReadFields(ctx, payload)
	if err == nil {
		b.AddFields(ordinal, fields)
	}
	return err
}

// AddFields covers a document whose fields were read.
func (b *Builder) AddFields(ordinal uint32, fields Fields) {
	b.docs.Add(ordinal)
	for i := range fields {
		f := &fields[i]
		if b.keeps != nil && !b.keeps(f.name, ordinal) {
			continue
		}
		c := b.column(f.name)
		if c == nil {
			b.leftOut.Add(ordinal)
			continue
		}
		c.present.Add(ordinal)
		if f.null {
			c.nulls.Add(ordinal)
		}
		if f.open {
			c.open.Add(ordinal)
		}
		for i := range f.values {
			b.bytes += c.values.add(&f.values[i], ordinal)
		}
		for i := range f.arrays {
			b.bytes += c.arrays.add(&f.arrays[i], ordinal)
		}
	}
}

// column is nil for a field that is beyond the limits.
func (b *Builder) column(f condition.Field) *column {
	c := b.fields[f]
	if c == nil {
		if b.keeps == nil && (len(b.fields) >= maxFields || len(f) > maxFieldName) {
			return nil
		}
		if b.fields == nil {
			b.fields = map[condition.Field]*column{}
		}
		c = &column{}
		b.fields[f] = c
		b.bytes += 1024
	}
	return c
}

// add returns about the memory that it needs.
func (l *list) add(e *entry, ordinal uint32) (bytes int64) {
	if l.numbers == nil {
		l.numbers = map[string]uint32{}
	}
	var buf [64]byte
	key := appendEntry(buf[:0], e)
	n, there := l.numbers[string(key)]
	if !there {
		n = uint32(len(l.entries))
		l.numbers[string(key)] = n
		l.entries = append(l.entries, *e)
		bytes = int64(len(key)+len(e.Text)) + 128
	}
	l.pairs, l.docs = append(l.pairs, n), append(l.docs, ordinal)
	return bytes + 10
}

// absorb covers what a run covers of the documents of keep, which the builder has not.
// Of a run from which fields were left out the payloads are read again: a field that the
// run has not may be one that the builder has, and there is nothing to tell of it.
func (b *Builder) absorb(ctx context.Context, r *Run, keep *roaring.Bitmap, payload func(ordinal uint32) ([]byte, error)) error {
	keep = roaring.And(&r.docs, keep)
	if r.leftOut.IsEmpty() {
		return b.absorbValues(ctx, r, keep)
	}
	for it := keep.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		p, err := payload(ordinal)
		if err != nil {
			return err
		}
		if err := b.Add(ctx, ordinal, p); err != nil {
			return err
		}
	}
	return nil
}

// absorbValues covers documents of a run by the values that it has.
func (b *Builder) absorbValues(ctx context.Context, r *Run, docs *roaring.Bitmap) error {
	b.docs.Or(docs)
	b.leftOut.Or(roaring.And(&r.leftOut, docs))
	for _, f := range r.names {
		h, err := r.field(f)
		if err != nil {
			return err
		}
		present := roaring.And(&h.present, docs)
		if present.IsEmpty() {
			continue
		}
		c := b.column(f)
		if c == nil {
			b.leftOut.Or(present)
			continue
		}
		c.present.Or(present)
		c.nulls.Or(roaring.And(&h.nulls, docs))
		c.open.Or(roaring.And(&h.open, docs))
		for i := range h.blocks {
			if err := ctx.Err(); err != nil {
				return err
			}
			bl, err := r.block(h, i)
			if err != nil {
				return err
			}
			l := &c.values
			if i >= h.values {
				l = &c.arrays
			}
			bl.visit(func(n int, ordinal uint32) {
				if docs.Contains(ordinal) {
					b.bytes += l.add(&bl.entries[n], ordinal)
				}
			})
		}
	}
	return nil
}
