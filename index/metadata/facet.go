package metadata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Facet tells how many documents have each value of a field; each passage of a document counts
// by itself. A document counts once for each value that it has: those of an array are its elements,
// and those of a field of objects in an array are the values in all of them. What is null is no value.
type Facet struct {
	Field   condition.Field `json:"field"`
	Docs    uint64          `json:"docs"`    // that were asked
	Missing uint64          `json:"missing"` // of them without the field
	Null    uint64          `json:"null"`    // of them with null, be it in an array
	// Values are those of the most documents, the most first; equal counts in the order of
	// the values.
	Values []ValueCount `json:"values"`
	// Others is how many further values there are.
	Others uint64 `json:"others"`
}

// ValueCount is how many documents have a value.
type ValueCount struct {
	Value condition.Literal `json:"value"`
	Docs  uint64            `json:"docs"`
}

// Bytes is about what the values take.
func (f *Facet) Bytes() (n int64) {
	for i := range f.Values {
		n += literalBytes(&f.Values[i].Value)
	}
	return n
}

// FacetOptions of a [Counter]. The zero value, or nil, is a good choice.
type FacetOptions struct {
	// Values is how many are returned at most; 0: [DefaultFacetValues].
	Values int
	// Memory bounds the bytes of the distinct values that are counted, some 200 each and
	// those of its text; 0: [DefaultFacetMemory]. More are [ErrTooManyValues]. Beside them
	// each goroutine holds those of a few documents.
	Memory int64
	// Lenient takes a field that no document has for one that is missing in all.
	// Otherwise it is an error ([condition.ErrUnknownField]).
	Lenient bool
}

// Defaults of [FacetOptions].
const (
	DefaultFacetValues = 10
	DefaultFacetMemory = 64 << 20 // some 300,000 short values
)

// ErrTooManyValues: the distinct values of a field do not fit in the memory for them.
var ErrTooManyValues = errors.New("too many distinct values")

// Counter counts the values of a field over the documents of one index after the other.
type Counter struct {
	field  condition.Field
	values int
	memory int64

	mu                  sync.Mutex
	docs, missing, null uint64
	counts              map[condition.Literal]uint64
	memoryBytes         int64 // bytes of these
}

// NewCounter returns one that has counted nothing.
func NewCounter(f condition.Field, o *FacetOptions) *Counter {
	if o == nil {
		o = &FacetOptions{}
	}
	return &Counter{
		field: f, values: cmp.Or(o.Values, DefaultFacetValues), memory: cmp.Or(o.Memory, DefaultFacetMemory),
		counts: map[condition.Literal]uint64{},
	}
}

// literalBytes is about what a value takes.
func literalBytes(l *condition.Literal) int64 { return 200 + int64(len(l.Text)) }

func (c *Counter) checkMemory(bytes int64) error {
	if bytes <= c.memory {
		return nil
	}
	return fmt.Errorf("field %s: %w: they take more than %d bytes", c.field, ErrTooManyValues, c.memory)
}

// addCount counts documents that have a value, of which there is room for so many.
func (c *Counter) addCount(l condition.Literal, docs uint64) error {
	if c.counts[l] += docs; c.counts[l] > docs {
		return nil
	}
	c.memoryBytes += literalBytes(&l)
	return c.checkMemory(c.memoryBytes)
}

// valueTally is what was read of payloads, and is not counted yet.
type valueTally struct {
	docs, missing, null uint64
	values              []condition.Literal // those of each document once
}

// maxTally is how many values of a tally are counted at a time.
const maxTally = 4096

// addRecord takes in what a document has.
func (c *Counter) addRecord(e *condition.Evaluation, t *valueTally, d *condition.Record) error {
	t.docs++
	null, begin, bytes := false, len(t.values), int64(0)
	var seen map[condition.Literal]bool // values of the document, if it has many
	hasField, err := d.Literals(c.field, func(l condition.Literal) error {
		if l.Kind == condition.Null {
			null = true
			return nil
		}
		docValues := t.values[begin:]
		switch {
		case seen == nil && slices.Contains(docValues, l), seen[l]:
			return nil
		case seen != nil:
			seen[l] = true
		case len(docValues) == 16:
			seen = map[condition.Literal]bool{l: true}
			for _, have := range docValues {
				seen[have] = true
			}
		}
		t.values = append(t.values, l)
		bytes += literalBytes(&l)
		return c.checkMemory(bytes) // all values are no fewer
	})
	if !hasField {
		t.missing++
	}
	if null {
		t.null++
	}
	if err == nil && len(t.values) >= maxTally {
		err = c.flushTally(e, t)
	}
	return err
}

// flushTally counts what was read, and begins anew.
func (c *Counter) flushTally(e *condition.Evaluation, t *valueTally) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.docs += t.docs
	c.missing += t.missing
	c.null += t.null
	for i, l := range t.values {
		if i%1024 == 0 && e.Err() != nil {
			break
		}
		if err := c.addCount(l, 1); err != nil {
			return err
		}
	}
	clear(t.values)
	*t = valueTally{values: t.values[:0]}
	return e.Err()
}

// Merge takes in what another counter of the same field has counted of other documents; all
// of its values are to be in f.
func (c *Counter) Merge(f *Facet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.docs += f.Docs
	c.missing += f.Missing
	c.null += f.Null
	for _, v := range f.Values {
		if err := c.addCount(v.Value, v.Docs); err != nil {
			return err
		}
	}
	return nil
}

// Facet is what has been counted.
func (c *Counter) Facet(ctx context.Context) (*Facet, error) {
	n := min(c.values, len(c.counts))
	best := make([]ValueCount, 0, 2*n)
	steps, stopErr := 0, error(nil)
	step := func() error {
		if steps++; steps%4096 == 0 && stopErr == nil {
			stopErr = ctx.Err()
		}
		return stopErr
	}
	keepBest := func() {
		slices.SortFunc(best, func(a, b ValueCount) int {
			if step() != nil {
				return 0
			}
			return cmp.Or(cmp.Compare(b.Docs, a.Docs), a.Value.Compare(b.Value))
		})
		best = best[:min(len(best), n)]
	}
	for l, docs := range c.counts {
		if step() != nil {
			break
		}
		if best = append(best, ValueCount{l, docs}); len(best) == 2*n {
			keepBest()
		}
	}
	if keepBest(); stopErr != nil {
		return nil, stopErr
	}
	return &Facet{
		Field: c.field, Docs: c.docs, Missing: c.missing, Null: c.null,
		Values: best, Others: uint64(len(c.counts) - len(best)),
	}, nil
}

// payloadsPerBlock is for how many documents a block of values their payloads are read in
// place of the blocks.
var payloadsPerBlock uint64 = 16

// Count counts the values that some live documents have; nil: all.
func (c *Counter) Count(ctx context.Context, s *Selector, docs *roaring.Bitmap) error {
	if docs == nil {
		docs = s.live
	}
	unresolved := roaring.New() // whose payloads are read
	for i := range s.runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		left, err := c.countRun(ctx, &s.runs[i], roaring.And(s.runs[i].docsCounted, docs))
		if err != nil {
			return corruptRunError(s.snapshot, s.runs[i].id, err)
		}
		unresolved.Or(left)
	}
	return s.visitBlocks(ctx, unresolved, func(_ int, ordinals []uint32) error {
		t, evaluation := &valueTally{}, condition.NewEvaluation(ctx)
		for _, ordinal := range ordinals {
			d, err := s.readRecord(evaluation, ordinal)
			if err != nil {
				return err
			}
			if err := c.addRecord(evaluation, t, d); err != nil {
				return err
			}
		}
		return c.flushTally(evaluation, t)
	})
}

// countRun counts those of some documents of a run of which it knows, and returns the
// others.
func (c *Counter) countRun(ctx context.Context, r *countedRun, docs *roaring.Bitmap) (unresolved *roaring.Bitmap, err error) {
	h, err := r.readField(c.field)
	if err != nil {
		return nil, err
	}
	if h != nil && docs.GetCardinality() <= payloadsPerBlock*uint64(h.valueBlocks) {
		return docs, nil
	}
	unresolved = roaring.And(docs, r.undecidedDocs(c.field, h))
	if h != nil {
		unresolved.Or(roaring.And(docs, &h.cutTexts))
	}
	known := roaring.AndNot(docs, unresolved)
	c.docs += known.GetCardinality()
	if h == nil {
		c.missing += known.GetCardinality()
		return unresolved, nil
	}
	c.missing += known.GetCardinality() - known.AndCardinality(&h.present)
	c.null += known.AndCardinality(&h.nulls)
	for i := range h.valueBlocks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		bl, err := r.readBlock(h, i)
		if err != nil {
			return nil, err
		}
		if err := c.countBlock(bl, known); err != nil {
			return nil, err
		}
	}
	return unresolved, nil
}

// countBlock counts those of some documents that a block has.
func (c *Counter) countBlock(bl *valueBlock, docs *roaring.Bitmap) error {
	counts := make([]uint64, len(bl.entries))
	if len(bl.entries) == 1 {
		counts[0] = bl.docs.AndCardinality(docs)
	} else {
		bl.visitPairs(func(n int, ordinal uint32) {
			if docs.Contains(ordinal) {
				counts[n]++
			}
		})
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		e := &bl.entries[i]
		if e.cut { // the head names the documents that have it
			return fmt.Errorf("%w: field %s: a text that was cut", ErrFormat, c.field)
		}
		if err := c.addCount(condition.LiteralOf(e.Value, e.form), n); err != nil {
			return err
		}
	}
	return nil
}
