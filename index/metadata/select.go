package metadata

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
)

// Selector finds the documents of an index at one moment that conditions are true of, by
// its runs and, where these do not tell, by payloads. It is made once for that moment, and
// is safe for concurrent use.
type Selector struct {
	view *storage.Snapshot
	live *roaring.Bitmap
	runs []counted // newer ones first
}

// counted is a run with the live documents for which it counts: those that no newer one
// covers.
type counted struct {
	*Run
	id     uint32
	counts *roaring.Bitmap
	all    bool // it covers no others
}

// NewSelector opens the runs of a view, which cover its live documents.
func NewSelector(v *storage.Snapshot, live *roaring.Bitmap) (*Selector, error) {
	s, rest := &Selector{view: v, live: live}, live.Clone()
	for _, stored := range slices.Backward(v.State().FieldRuns) {
		run, err := openRun(v, stored)
		if err != nil {
			return nil, err
		}
		counts := roaring.And(&run.docs, rest)
		rest.AndNot(&run.docs)
		if !counts.IsEmpty() {
			s.runs = append(s.runs, counted{run, stored.ID, counts, counts.GetCardinality() == run.docs.GetCardinality()})
		}
	}
	if n := rest.GetCardinality(); n > 0 {
		err := fmt.Errorf("%w: %d documents are in no run", ErrFormat, n)
		return nil, &storage.CorruptError{Path: v.Path(), What: "field runs", Err: err}
	}
	return s, nil
}

// Select are the documents that a condition is true of. Errors are [storage.ErrCorrupt] and
// that of the context.
func (s *Selector) Select(ctx context.Context, c *condition.Condition) (*roaring.Bitmap, error) {
	found, err := condition.Select(ctx, c, sets{ctx, s})
	if err != nil {
		return nil, err
	}
	found.maybe.AndNot(found.sure)
	matching, err := s.scan(ctx, found.maybe, func(e *condition.Evaluation, d *condition.Record) (bool, error) { return e.Match(c, d) })
	if err != nil {
		return nil, err
	}
	found.sure.Or(matching)
	return found.sure, nil
}

// between are bounds of a set of documents: sure are in it, and none is that is not in
// maybe. The bitmaps may be changed.
type between struct{ sure, maybe *roaring.Bitmap }

func exactly(b *roaring.Bitmap) between { return between{b, b.Clone()} }

// sets answers the tests of a condition. It is a [condition.Sets].
type sets struct {
	ctx context.Context
	*Selector
}

func (s sets) All() between  { return exactly(s.live.Clone()) }
func (s sets) None() between { return exactly(roaring.New()) }

func (s sets) And(a, b between) between {
	a.sure.And(b.sure)
	a.maybe.And(b.maybe)
	return a
}

func (s sets) Or(a, b between) between {
	a.sure.Or(b.sure)
	a.maybe.Or(b.maybe)
	return a
}

// Test answers tests of ids and ordinals, and of fields by the runs.
func (s sets) Test(t *condition.Test, is condition.Truth) (between, error) {
	switch t.Field {
	case condition.FieldOrdinal:
		docs, err := s.ordinals(s.ctx, t, is)
		return exactly(docs), err
	case condition.FieldID:
		docs, err := s.ids(s.ctx, t, is)
		return exactly(docs), err
	}
	all := between{roaring.New(), roaring.New()}
	for _, r := range s.runs {
		if err := s.ctx.Err(); err != nil {
			return all, err
		}
		sure, maybe, err := r.Test(s.ctx, t, is)
		if err != nil {
			return all, damaged(s.view, r.id, err)
		}
		if !r.all {
			sure.And(r.counts)
			maybe.And(r.counts)
		}
		all.sure.Or(sure)
		all.maybe.Or(maybe)
	}
	return all, nil
}

// scanBlock is how many payloads a goroutine reads at a time.
var scanBlock = 1024

// scan returns those of some documents that match by their payloads.
func (s *Selector) scan(ctx context.Context, docs *roaring.Bitmap, match func(*condition.Evaluation, *condition.Record) (bool, error)) (*roaring.Bitmap, error) {
	found := make([][]uint32, parallel.Blocks(int(docs.GetCardinality()), scanBlock))
	err := s.read(ctx, docs, func(block int, ordinals []uint32) error {
		evaluation := condition.NewEvaluation(ctx)
		for _, ordinal := range ordinals {
			d, err := s.document(evaluation, ordinal)
			if err != nil {
				return err
			}
			matches, err := match(evaluation, d)
			if err != nil {
				return err
			}
			if matches {
				found[block] = append(found[block], ordinal)
			}
		}
		return nil
	})
	all := roaring.New()
	for _, f := range found {
		all.AddMany(f)
	}
	return all, err
}

// read hands out documents whose payloads are to be read, in blocks, to functions that may
// run at a time.
func (s *Selector) read(ctx context.Context, docs *roaring.Bitmap, fn func(block int, ordinals []uint32) error) error {
	ordinals := docs.ToArray()
	return parallel.Do(ctx, parallel.Blocks(len(ordinals), scanBlock), 0, func(i int) (err error) {
		defer storage.Guard(s.view.Path(), &err)()
		lo, hi := parallel.Block(i, len(ordinals), scanBlock)
		return fn(i, ordinals[lo:hi])
	})
}

// document is what conditions see of a live document, if the context goes on.
func (s *Selector) document(e *condition.Evaluation, ordinal uint32) (*condition.Record, error) {
	if err := e.Err(); err != nil {
		return nil, err
	}
	payload, err := s.view.Payload(ordinal)
	return e.Document(payload, s.view.ID(ordinal), ordinal), err
}

// fieldsLooked bounds the fields of a run that Fields looks at.
const fieldsLooked = 1000

// Fields are the fields that documents have, in order, to tell who has named another one;
// not all, where there are very many.
func (s *Selector) Fields(ctx context.Context) ([]condition.Field, error) {
	have := map[condition.Field]bool{}
	for _, r := range s.runs {
		for _, f := range r.names[:min(len(r.names), fieldsLooked)] {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			docs, _, err := r.present(f)
			if err != nil {
				return nil, damaged(s.view, r.id, err)
			}
			if docs.Intersects(r.counts) {
				have[f] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(have)), nil
}

// FindFields looks for documents that have some fields, be they null, of those that are
// not known yet, and marks them known.
func (s *Selector) FindFields(ctx context.Context, fields []condition.Field, known map[condition.Field]bool) error {
	var missing []condition.Field
	look := roaring.New()
	for _, f := range fields {
		unknown := roaring.New()
		for _, r := range s.runs {
			if known[f] {
				break
			}
			docs, open, err := r.present(f)
			if err != nil {
				return damaged(s.view, r.id, err)
			}
			known[f] = docs.Intersects(r.counts)
			unknown.Or(roaring.And(open, r.counts))
		}
		if !known[f] {
			missing = append(missing, f)
			look.Or(unknown)
		}
	}
	evaluation := condition.NewEvaluation(ctx)
	for it := look.Iterator(); it.HasNext() && len(missing) > 0; {
		d, err := s.document(evaluation, it.Next())
		if err != nil {
			return err
		}
		still := missing[:0]
		for _, f := range missing {
			if known[f] = d.Has(f); !known[f] {
				still = append(still, f)
			}
		}
		missing = still
	}
	return evaluation.Err()
}
