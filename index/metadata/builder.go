package metadata

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Builder gathers the fields of the documents of a change, and makes runs of them.
//
// It keeps a field completely or not at all: a field beyond the limits is left out of the run, and
// leftOut has the documents with such fields. So for each document and field it is known whether the
// run has the values, whatever the order of documents.
type Builder struct {
	docs        roaring.Bitmap
	leftOut     roaring.Bitmap // documents with fields that were left out
	fields      map[condition.Field]*column
	memoryBytes int64 // estimate of the memory in use
	memoryLimit int64 // of memoryBytes

	// keepField, if not nil, decides in place of the limit of fields: see [Selector.Verify].
	keepField func(f condition.Field, ordinal uint32) bool
}

// column holds a field of the documents of a run.
type column struct {
	present, nulls, unresolved roaring.Bitmap // see [fieldHead]
	values                     valueList      // including the elements of arrays
	arrays                     valueList      // the arrays as text
}

// valueList holds the values of documents as pairs of entry and document.
type valueList struct {
	numberOf map[string]uint32
	entries  []entry  // distinct, in order of arrival
	numbers  []uint32 // number of the entry of each pair, its index in entries
	docs     []uint32 // ordinal of each pair
}

// Fields are the fields of a payload, with their values.
type Fields []field

type field struct {
	name           condition.Field
	null           bool // it is null, or has null in an array
	unresolved     bool // the values are incomplete, so they are read from the payload
	values, arrays []entry
}

// ReadFields reads the fields of a payload. A payload that is not a JSON object has none. The error
// is that of the context.
func ReadFields(ctx context.Context, payload []byte) (Fields, error) {
	if len(payload) == 0 {
		return nil, ctx.Err()
	}
	var fields Fields
	find := fieldFinder(&fields)
	extraValues := 0 // values beyond the first of each field
	e := condition.NewEvaluation(ctx)
	record := e.Document(payload, "", 0) // id and ordinal are no fields of the payload
	record.Fields(maxDepth, func(name condition.Field, v condition.Value, form condition.Form) bool {
		i := find(name)
		exists := i < len(fields)
		if !exists {
			fields = append(fields, field{name: name})
		}
		f := &fields[i]
		if exists {
			extraValues++
			f.unresolved = f.unresolved || extraValues > maxMembers
		}
		switch {
		case f.unresolved:
			f.values, f.arrays, f.null = nil, nil, false
		case v.Kind == condition.Null:
			f.null = true
		case form == condition.WholeArray:
			f.arrays = append(f.arrays, newEntry(v, condition.Nested))
		default:
			f.values = append(f.values, newEntry(v, form))
		}
		return true
	})
	for i := range fields {
		fields[i].sortValues(e)
	}
	return fields, e.Err()
}

// fieldFinder returns a function that returns the index of a field by its name, or the length of
// fields for a new name, which the caller appends.
func fieldFinder(fields *Fields) func(name condition.Field) int {
	var indexOf map[condition.Field]int // built once there are 16 fields
	return func(name condition.Field) int {
		n := len(*fields)
		switch {
		case n < 16:
			for i := range *fields {
				if (*fields)[i].name == name {
					return i
				}
			}
			return n
		case indexOf == nil:
			indexOf = make(map[condition.Field]int, 2*n)
			for i := range *fields {
				indexOf[(*fields)[i].name] = i
			}
		}
		i, exists := indexOf[name]
		if !exists {
			i = n
			indexOf[name] = i
		}
		return i
	}
}

// sortValues sorts the values and removes duplicates.
func (f *field) sortValues(e *condition.Evaluation) {
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
		// Facets count entries, but 1 and 1.0 are one value for them.
		if a, b := &f.values[i], &f.values[i+1]; a.IsNumber() && b.Kind == condition.Real && a.Compare(b.Value) == 0 {
			f.unresolved = true
		}
	}
	if f.unresolved {
		f.values, f.arrays, f.null = nil, nil, false
	}
}

// Add adds the fields of a document to the run. A payload that is not a JSON object has none. After
// an error, which is that of the context, the builder must not be used.
func (b *Builder) Add(ctx context.Context, ordinal uint32, payload []byte) error {
	fields, err := ReadFields(ctx, payload)
	if err == nil {
		b.AddFields(ordinal, fields)
	}
	return err
}

// AddFields adds the fields of a document, which were read before.
func (b *Builder) AddFields(ordinal uint32, fields Fields) {
	b.docs.Add(ordinal)
	for i := range fields {
		f := &fields[i]
		if b.keepField != nil && !b.keepField(f.name, ordinal) {
			continue
		}
		c := b.columnFor(f.name)
		if c == nil {
			b.leftOut.Add(ordinal)
			continue
		}
		c.present.Add(ordinal)
		if f.null {
			c.nulls.Add(ordinal)
		}
		if f.unresolved {
			c.unresolved.Add(ordinal)
		}
		for i := range f.values {
			b.memoryBytes += c.values.add(&f.values[i], ordinal)
		}
		for i := range f.arrays {
			b.memoryBytes += c.arrays.add(&f.arrays[i], ordinal)
		}
	}
}

// columnFor returns the column of a field, nil if the field is beyond the limits.
func (b *Builder) columnFor(f condition.Field) *column {
	c := b.fields[f]
	if c == nil {
		if b.keepField == nil && (len(b.fields) >= maxFields || len(f) > maxFieldName) {
			return nil
		}
		if b.fields == nil {
			b.fields = map[condition.Field]*column{}
		}
		c = &column{}
		b.fields[f] = c
		b.memoryBytes += 1024 // estimate of an empty column
	}
	return c
}

// add adds a pair, and returns an estimate of the memory that it takes.
func (l *valueList) add(e *entry, ordinal uint32) (bytes int64) {
	if l.numberOf == nil {
		l.numberOf = map[string]uint32{}
	}
	var buf [64]byte
	key := appendEntry(buf[:0], e)
	n, exists := l.numberOf[string(key)]
	if !exists {
		n = uint32(len(l.entries))
		l.numberOf[string(key)] = n
		l.entries = append(l.entries, *e)
		bytes = int64(len(key)+len(e.Text)) + 128 // for the entry and its key in the map
	}
	l.numbers, l.docs = append(l.numbers, n), append(l.docs, ordinal)
	return bytes + 10 // 8 for the pair, and slack of the growing slices
}

// absorbRun adds the documents of keep that the run has; the builder must not have them. If fields
// were left out of the run, the payloads are read again, since the builder may keep such a field
// and needs its values.
func (b *Builder) absorbRun(
	ctx context.Context, r *Run, keep *roaring.Bitmap, payload func(ordinal uint32) ([]byte, error),
) error {
	keep = roaring.And(&r.docs, keep)
	if r.leftOut.IsEmpty() {
		return b.absorbValues(ctx, r, keep)
	}
	for it := keep.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		payloadOfDoc, err := payload(ordinal)
		if err != nil {
			return err
		}
		if err := b.Add(ctx, ordinal, payloadOfDoc); err != nil {
			return err
		}
	}
	return nil
}

// absorbValues adds documents of a run with the values of the run.
func (b *Builder) absorbValues(ctx context.Context, r *Run, docs *roaring.Bitmap) error {
	b.docs.Or(docs)
	b.leftOut.Or(roaring.And(&r.leftOut, docs))
	for _, f := range r.names {
		head, err := r.readField(f)
		if err != nil {
			return err
		}
		present := roaring.And(&head.present, docs)
		if present.IsEmpty() {
			continue
		}
		c := b.columnFor(f)
		if c == nil {
			b.leftOut.Or(present)
			continue
		}
		c.present.Or(present)
		c.nulls.Or(roaring.And(&head.nulls, docs))
		c.unresolved.Or(roaring.And(&head.unresolved, docs))
		for i := range head.blocks {
			if err := ctx.Err(); err != nil {
				return err
			}
			block, err := r.readBlock(head, i)
			if err != nil {
				return err
			}
			list := &c.values
			if i >= head.valueBlocks {
				list = &c.arrays
			}
			block.visitPairs(func(n int, ordinal uint32) {
				if docs.Contains(ordinal) {
					b.memoryBytes += list.add(&block.entries[n], ordinal)
				}
			})
		}
	}
	return nil
}
