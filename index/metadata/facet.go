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
// by itself. An array counts with each of its elements, once a document. What is null is no value.
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
		n += bytesOf(&f.Values[i].Value)
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
	held                int64 // bytes of these
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

// bytesOf is about what a value takes.
func bytesOf(l *condition.Literal) int64 { return 200 + int64(len(l.Text)) }

func (c *Counter) full(held int64) error {
	if held <= c.memory {
		return nil
	}
	return fmt.Errorf("field %s: %w: they take more than %d bytes", c.field, ErrTooManyValues, c.memory)
}

// add counts documents that have a value, of which there is room for so many.
func (c *Counter) add(l condition.Literal, docs uint64) error {
	if c.counts[l] += docs; c.counts[l] > docs {
		return nil
	}
	c.held += bytesOf(&l)
	return c.full(c.held)
}

// tally is what was read of payloads, and is not counted yet.
type tally struct {
	docs, missing, null uint64
	values              []condition.Literal // those of each document once
}

// tallied is how many values of a tally are counted at a time.
const tallied = 4096

// tally takes in what a document has.
func (c *Counter) tally(e *condition.Evaluation, t *tally, d *condition.Document) error {
	t.docs++
	null, begin, held := false, len(t.values), int64(0)
	var many map[condition.Literal]bool // values of the document, if it has many
	there, err := d.Literals(c.field, func(l condition.Literal) error {
		if l.Kind == condition.Null {
			null = true
			return nil
		}
		own := t.values[begin:]
		switch {
		case many == nil && slices.Contains(own, l), many[l]:
			return nil
		case many != nil:
			many[l] = true
		case len(own) == 16:
			many = map[condition.Literal]bool{l: true}
			for _, have := range own {
				many[have] = true
			}
		}
		t.values = append(t.values, l)
		held += bytesOf(&l)
		return c.full(held) // all values are no fewer
	})
	if !there {
		t.missing++
	}
	if null {
		t.null++
	}
	if err == nil && len(t.values) >= tallied {
		err = c.count(e, t)
	}
	return err
}

// count counts what was read, and begins anew.
func (c *Counter) count(e *condition.Evaluation, t *tally) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.docs += t.docs
	c.missing += t.missing
	c.null += t.null
	for i, l := range t.values {
		if i%1024 == 0 && e.Err() != nil {
			break
		}
		if err := c.add(l, 1); err != nil {
			return err
		}
	}
	clear(t.values)
	*t = tally{values: t.values[:0]}
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
		if err := c.add(v.Value, v.Docs); err != nil {
			return err
		}
	}
	return nil
}

// Facet is what has been counted.
func (c *Counter) Facet(ctx context.Context) (*Facet, error) {
	n := min(c.values, len(c.counts))
	best := make([]ValueCount, 0, 2*n)
	steps, ended := 0, error(nil)
	step := func() error {
		if steps++; steps%4096 == 0 && ended == nil {
			ended = ctx.Err()
		}
		return ended
	}
	settle := func() {
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
			settle()
		}
	}
	if settle(); ended != nil {
		return nil, ended
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
	read := roaring.New() // whose payloads are read
	for i := range s.runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		open, err := c.countRun(ctx, &s.runs[i], roaring.And(s.runs[i].counts, docs))
		if err != nil {
			return damaged(s.view, s.runs[i].id, err)
		}
		read.Or(open)
	}
	return s.read(ctx, read, func(_ int, ordinals []uint32) error {
		t, evaluation := &tally{}, condition.NewEvaluation(ctx)
		for _, ordinal := range ordinals {
			d, err := s.document(evaluation, ordinal)
			if err != nil {
				return err
			}
			if err := c.tally(evaluation, t, d); err != nil {
				return err
			}
		}
		return c.count(evaluation, t)
	})
}

// countRun counts those of some documents of a run of which it knows, and returns the
// others.
func (c *Counter) countRun(ctx context.Context, r *counted, docs *roaring.Bitmap) (open *roaring.Bitmap, err error) {
	h, err := r.field(c.field)
	if err != nil {
		return nil, err
	}
	if h != nil && docs.GetCardinality() <= payloadsPerBlock*uint64(len(h.blocks)) {
		return docs, nil
	}
	open = roaring.And(docs, r.unknown(c.field, h))
	known := roaring.AndNot(docs, open)
	if h == nil {
		c.docs += known.GetCardinality()
		c.missing += known.GetCardinality()
		return open, nil
	}
	forms, err := r.forms(h)
	if err != nil {
		return nil, err
	}
	for i := range h.blocks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		bl, err := r.block(h, i)
		if err != nil {
			return nil, err
		}
		if err := c.countBlock(bl, known, forms, open); err != nil {
			return nil, err
		}
	}
	known.AndNot(open)
	have := roaring.And(known, &h.present)
	c.docs += known.GetCardinality()
	c.missing += known.GetCardinality() - have.GetCardinality()
	have.AndNot(&h.numbers)
	have.AndNot(&h.texts)
	c.null += have.GetCardinality()
	return open, nil
}

// countBlock counts those of some documents that a block has, and opens those of which it
// does not tell all.
func (c *Counter) countBlock(bl *block, docs, forms, open *roaring.Bitmap) error {
	counts := make([]struct{ plain, formed uint64 }, len(bl.entries))
	var untold []uint32
	if len(bl.entries) == 1 {
		here := roaring.And(&bl.docs, docs)
		if bl.entries[0].cut {
			open.Or(here)
			return nil
		}
		counts[0].formed = here.AndCardinality(forms)
		counts[0].plain = here.GetCardinality() - counts[0].formed
	} else {
		bl.visit(func(n int, ordinal uint32) {
			switch e := &bl.entries[n]; {
			case !docs.Contains(ordinal):
			case e.cut:
				untold = append(untold, ordinal)
			case e.mayBeFormed() && forms.Contains(ordinal):
				counts[n].formed++
			default:
				counts[n].plain++
			}
		})
	}
	open.AddMany(untold)
	for i, n := range counts {
		if err := c.addEntry(&bl.entries[i], condition.Plain, n.plain); err != nil {
			return err
		}
		form := condition.Boolean
		if bl.entries[i].Kind == condition.Text {
			form = condition.Nested
		}
		if err := c.addEntry(&bl.entries[i], form, n.formed); err != nil {
			return err
		}
	}
	return nil
}

// addEntry counts documents that have what an entry stands for.
func (c *Counter) addEntry(e *entry, form condition.Form, docs uint64) error {
	if docs == 0 {
		return nil
	}
	var values []condition.Literal
	null := false
	err := condition.LiteralsOf(e.Value, form, func(l condition.Literal) error {
		if l.Kind == condition.Null {
			null = true
		} else if !slices.Contains(values, l) { // they are few
			values = append(values, l)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: field %s: %w", ErrFormat, c.field, err)
	}
	if null {
		c.null += docs
	}
	for _, l := range values {
		if err := c.add(l, docs); err != nil {
			return err
		}
	}
	return nil
}

// mayBeFormed reports whether the value may be a boolean, an array or an object.
func (e *entry) mayBeFormed() bool {
	switch e.Kind {
	case condition.Integer:
		return e.Int == 0 || e.Int == 1
	case condition.Text:
		return e.Text != "" && (e.Text[0] == '[' || e.Text[0] == '{')
	}
	return false
}
