package metadata

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/errkind"
)

// Facet has the number of documents with each value of a field; each passage counts by itself. A
// document counts once for each of its values: an array has the values of its elements, and a field
// of objects in an array has the values in all of them. null is not a value.
type Facet struct {
	Field   condition.Field `json:"field"`
	Docs    uint64          `json:"docs"`    // all counted documents
	Missing uint64          `json:"missing"` // documents without the field
	Null    uint64          `json:"null"`    // documents with null, also in an array
	// Values are the most frequent values, by descending count; values with equal counts are in
	// ascending order.
	Values []ValueCount `json:"values"`
	// Others is the number of further values.
	Others uint64 `json:"others"`
}

// ValueCount is the number of documents with a value.
type ValueCount struct {
	Value condition.Literal `json:"value"`
	Docs  uint64            `json:"docs"`
}

// Bytes estimates the memory of the values.
func (f *Facet) Bytes() (n int64) {
	for i := range f.Values {
		n += literalBytes(&f.Values[i].Value)
	}
	return n
}

// FacetOptions configures a [Counter]. The zero value, or nil, is a good choice.
type FacetOptions struct {
	// Values limits the returned values. 0 means [DefaultFacetValues].
	Values int
	// Memory limits the bytes of the distinct values that are counted, about 200 each and those of
	// its text. 0 means [DefaultFacetMemory]. More are [ErrTooManyValues]. In addition, each
	// goroutine holds the values of a few documents.
	Memory int64
	// Lenient treats a field that no document has as missing in all documents. Otherwise it is an
	// error ([condition.ErrUnknownField]).
	Lenient bool
}

// Defaults of [FacetOptions].
const (
	DefaultFacetValues = 10
	DefaultFacetMemory = 64 << 20 // about 300,000 short values
)

// ErrTooManyValues reports that the distinct values of a field exceed the memory for them.
var ErrTooManyValues = errkind.New(errkind.BadRequest, "too many distinct values")

// Counter counts the values of a field over the documents of several indexes, one after another.
type Counter struct {
	field       condition.Field
	valueLimit  int
	memoryLimit int64

	mu                  sync.Mutex
	docs, missing, null uint64
	counts              map[condition.Literal]uint64
	memoryBytes         int64 // estimate for counts
}

// NewCounter returns a counter without counts.
func NewCounter(f condition.Field, o *FacetOptions) *Counter {
	if o == nil {
		o = &FacetOptions{}
	}
	return &Counter{
		field:       f,
		valueLimit:  cmp.Or(o.Values, DefaultFacetValues),
		memoryLimit: cmp.Or(o.Memory, DefaultFacetMemory),
		counts:      map[condition.Literal]uint64{},
	}
}

// literalBytes estimates the memory of a value.
func literalBytes(l *condition.Literal) int64 { return 200 + int64(len(l.Text)) }

// checkMemory refuses values that take more than the memory limit.
func (c *Counter) checkMemory(bytes int64) error {
	if bytes <= c.memoryLimit {
		return nil
	}
	return fmt.Errorf("field %s: %w: they take more than %d bytes", c.field, ErrTooManyValues, c.memoryLimit)
}

// addCount adds documents to the count of a value.
func (c *Counter) addCount(l condition.Literal, docs uint64) error {
	if c.counts[l] += docs; c.counts[l] > docs { // not a new value
		return nil
	}
	c.memoryBytes += literalBytes(&l)
	return c.checkMemory(c.memoryBytes)
}

// valueTally holds values that were read from payloads and are not counted yet.
type valueTally struct {
	docs, missing, null uint64
	values              []condition.Literal // each value of a document once
}

// maxTally is the number of values in a tally at which it is counted.
const maxTally = 4096

// addRecord adds the values of a document to the tally.
func (c *Counter) addRecord(e *condition.Evaluation, t *valueTally, d *condition.Record) error {
	t.docs++
	null, begin, bytes := false, len(t.values), int64(0)
	var seen map[condition.Literal]bool // values of the document, once there are more than 16
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
		return c.checkMemory(bytes) // the counter would need at least as much
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

// flushTally adds the tally to the counts, and empties it.
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
	clear(t.values) // so that their texts can be freed
	*t = valueTally{values: t.values[:0]}
	return e.Err()
}

// Merge adds the facet of another counter of the same field over other documents. f must have all
// values of that counter.
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

// Facet returns the counts so far.
func (c *Counter) Facet(ctx context.Context) (*Facet, error) {
	// Collect up to 2·n values at a time, and keep the n most frequent of them.
	n := min(c.valueLimit, len(c.counts))
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
		Field:   c.field,
		Docs:    c.docs,
		Missing: c.missing,
		Null:    c.null,
		Values:  best,
		Others:  uint64(len(c.counts) - len(best)),
	}, nil
}

// payloadsPerBlock is the number of documents for each block of values up to which their payloads
// are read instead of the blocks.
var payloadsPerBlock uint64 = 16

// Count adds the values of live documents to the counter. docs restricts them; a nil docs means all.
func (c *Counter) Count(ctx context.Context, s *Selector, docs *roaring.Bitmap) error {
	if docs == nil {
		docs = s.live
	}
	// Count by the field runs, which have the values of most documents in order. The documents whose
	// values a run does not tell are unresolved.
	unresolved := roaring.New()
	for i := range s.runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		unresolvedOfRun, err := c.countRun(ctx, &s.runs[i], roaring.And(s.runs[i].docsCounted, docs))
		if err != nil {
			return corruptRunError(s.snapshot, s.runs[i].id, err)
		}
		unresolved.Or(unresolvedOfRun)
	}
	// Count the unresolved documents by their payloads.
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

// countRun counts the documents of a run whose values the run has, and returns the others.
func (c *Counter) countRun(
	ctx context.Context, r *countedRun, docs *roaring.Bitmap,
) (unresolved *roaring.Bitmap, err error) {
	head, err := r.readField(c.field)
	if err != nil {
		return nil, err
	}
	if head != nil && docs.GetCardinality() <= payloadsPerBlock*uint64(head.valueBlocks) {
		return docs, nil
	}
	unresolved = roaring.And(docs, r.undecidedDocs(c.field, head))
	if head != nil {
		unresolved.Or(roaring.And(docs, &head.cutTexts))
	}
	resolved := roaring.AndNot(docs, unresolved)
	c.docs += resolved.GetCardinality()
	if head == nil {
		c.missing += resolved.GetCardinality()
		return unresolved, nil
	}
	c.missing += resolved.GetCardinality() - resolved.AndCardinality(&head.present)
	c.null += resolved.AndCardinality(&head.nulls)
	for i := range head.valueBlocks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		block, err := r.readBlock(head, i)
		if err != nil {
			return nil, err
		}
		if err := c.countBlock(block, resolved); err != nil {
			return nil, err
		}
	}
	return unresolved, nil
}

// countBlock counts the documents of docs that a block has.
func (c *Counter) countBlock(block *valueBlock, docs *roaring.Bitmap) error {
	counts := make([]uint64, len(block.entries))
	if len(block.entries) == 1 {
		counts[0] = block.docs.AndCardinality(docs)
	} else {
		block.visitPairs(func(n int, ordinal uint32) {
			if docs.Contains(ordinal) {
				counts[n]++
			}
		})
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		e := &block.entries[i]
		if e.cut { // such documents are in the cutTexts of the head, and so unresolved
			return fmt.Errorf("%w: field %s: a text that was cut", ErrFormat, c.field)
		}
		if err := c.addCount(condition.NewLiteral(e.Value, e.form), n); err != nil {
			return err
		}
	}
	return nil
}
