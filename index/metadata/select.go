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

// Selector selects the documents of one state of an index for which a condition is true: by its
// runs and, where these cannot decide, by payloads. It is safe for concurrent use.
type Selector struct {
	snapshot *storage.Snapshot
	live     *roaring.Bitmap
	runs     []countedRun // newer ones first
}

// countedRun is a run with the live documents for which it counts: those that no newer run covers.
type countedRun struct {
	*Run
	id          uint32
	docsCounted *roaring.Bitmap
	countsAll   bool // docsCounted are all documents of the run
}

// NewSelector opens the runs of a snapshot, which must cover its live documents.
func NewSelector(snap *storage.Snapshot, live *roaring.Bitmap) (*Selector, error) {
	s, uncovered := &Selector{snapshot: snap, live: live}, live.Clone()
	for _, stored := range slices.Backward(snap.State().FieldRuns) {
		run, err := openRun(snap, stored)
		if err != nil {
			return nil, err
		}
		counts := roaring.And(&run.docs, uncovered)
		uncovered.AndNot(&run.docs)
		if !counts.IsEmpty() {
			s.runs = append(s.runs, countedRun{
				Run:         run,
				id:          stored.ID,
				docsCounted: counts,
				countsAll:   counts.GetCardinality() == run.docs.GetCardinality(),
			})
		}
	}
	if n := uncovered.GetCardinality(); n > 0 {
		err := fmt.Errorf("%w: %d documents are in no run", ErrFormat, n)
		return nil, &storage.CorruptError{Path: snap.Path(), What: "field runs", Err: err}
	}
	return s, nil
}

// Select returns the documents for which a condition is true. Errors: [storage.ErrCorrupt], and
// that of the context.
func (s *Selector) Select(ctx context.Context, c *condition.Condition) (*roaring.Bitmap, error) {
	found, err := condition.Select(ctx, c, docSets{ctx, s})
	if err != nil {
		return nil, err
	}
	found.maybe.AndNot(found.sure)
	matches := func(e *condition.Evaluation, d *condition.Record) (bool, error) { return e.Match(c, d) }
	matching, err := s.matchPayloads(ctx, found.maybe, matches)
	if err != nil {
		return nil, err
	}
	found.sure.Or(matching)
	return found.sure, nil
}

// docBounds bounds a set of documents: all of sure are in it, and none outside of maybe. The
// bitmaps may be changed.
type docBounds struct{ sure, maybe *roaring.Bitmap }

// exactBounds returns bounds of a known set.
func exactBounds(b *roaring.Bitmap) docBounds { return docBounds{b, b.Clone()} }

// docSets evaluates the tests of a condition. It implements [condition.Sets].
type docSets struct {
	ctx context.Context
	*Selector
}

func (s docSets) All() docBounds  { return exactBounds(s.live.Clone()) }
func (s docSets) None() docBounds { return exactBounds(roaring.New()) }

func (s docSets) And(a, b docBounds) docBounds {
	a.sure.And(b.sure)
	a.maybe.And(b.maybe)
	return a
}

func (s docSets) Or(a, b docBounds) docBounds {
	a.sure.Or(b.sure)
	a.maybe.Or(b.maybe)
	return a
}

// Test evaluates tests of ids and ordinals, and of fields by the runs.
func (s docSets) Test(t *condition.Test, wanted condition.Truth) (docBounds, error) {
	switch t.Field {
	case condition.FieldOrdinal:
		docs, err := s.selectByOrdinal(s.ctx, t, wanted)
		return exactBounds(docs), err
	case condition.FieldID:
		docs, err := s.selectByID(s.ctx, t, wanted)
		return exactBounds(docs), err
	}
	bounds := docBounds{roaring.New(), roaring.New()}
	for _, r := range s.runs {
		if err := s.ctx.Err(); err != nil {
			return bounds, err
		}
		sure, maybe, err := r.Test(s.ctx, t, wanted)
		if err != nil {
			return bounds, corruptRunError(s.snapshot, r.id, err)
		}
		if !r.countsAll {
			sure.And(r.docsCounted)
			maybe.And(r.docsCounted)
		}
		bounds.sure.Or(sure)
		bounds.maybe.Or(maybe)
	}
	return bounds, nil
}

// scanBlock is the number of payloads that a goroutine reads at a time.
var scanBlock = 1024

// matchPayloads returns the documents whose payloads match.
func (s *Selector) matchPayloads(
	ctx context.Context, docs *roaring.Bitmap, match func(*condition.Evaluation, *condition.Record) (bool, error),
) (*roaring.Bitmap, error) {
	found := make([][]uint32, parallel.Blocks(int(docs.GetCardinality()), scanBlock))
	err := s.visitBlocks(ctx, docs, func(block int, ordinals []uint32) error {
		evaluation := condition.NewEvaluation(ctx)
		for _, ordinal := range ordinals {
			d, err := s.readRecord(evaluation, ordinal)
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
	matching := roaring.New()
	for _, f := range found {
		matching.AddMany(f)
	}
	return matching, err
}

// visitBlocks calls visit concurrently with blocks of documents, whose payloads visit may read.
func (s *Selector) visitBlocks(
	ctx context.Context, docs *roaring.Bitmap, visit func(block int, ordinals []uint32) error,
) error {
	ordinals := docs.ToArray()
	return parallel.Do(ctx, parallel.Blocks(len(ordinals), scanBlock), 0, func(i int) (err error) {
		defer storage.Guard(s.snapshot.Path(), &err)()
		lo, hi := parallel.Block(i, len(ordinals), scanBlock)
		return visit(i, ordinals[lo:hi])
	})
}

// readRecord reads a live document as conditions see it, unless the context has ended.
func (s *Selector) readRecord(e *condition.Evaluation, ordinal uint32) (*condition.Record, error) {
	if err := e.Err(); err != nil {
		return nil, err
	}
	payload, err := s.snapshot.Payload(ordinal)
	return e.Document(payload, s.snapshot.ID(ordinal), ordinal), err
}

// maxFieldsListed is the number of fields of a run that Fields visits.
const maxFieldsListed = 1000

// Fields returns the fields that documents have, sorted, for error messages. The list is incomplete
// if there are very many.
func (s *Selector) Fields(ctx context.Context) ([]condition.Field, error) {
	present := map[condition.Field]bool{}
	for _, r := range s.runs {
		for _, f := range r.names[:min(len(r.names), maxFieldsListed)] {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			docs, _, err := r.docsWithField(f)
			if err != nil {
				return nil, corruptRunError(s.snapshot, r.id, err)
			}
			if docs.Intersects(r.docsCounted) {
				present[f] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(present)), nil
}

// FindFields adds to existing the fields that some document has, even as null. It does not look for
// those that are in it already.
func (s *Selector) FindFields(ctx context.Context, fields []condition.Field, existing map[condition.Field]bool) error {
	// Look into the runs. Documents for which they cannot decide are undecided.
	var missing []condition.Field
	undecided := roaring.New()
	for _, f := range fields {
		undecidedOfField := roaring.New()
		for _, r := range s.runs {
			if existing[f] {
				break
			}
			docs, undecidedOfRun, err := r.docsWithField(f)
			if err != nil {
				return corruptRunError(s.snapshot, r.id, err)
			}
			existing[f] = docs.Intersects(r.docsCounted)
			undecidedOfField.Or(roaring.And(undecidedOfRun, r.docsCounted))
		}
		if !existing[f] {
			missing = append(missing, f)
			undecided.Or(undecidedOfField)
		}
	}
	// Look into the payloads of the undecided documents.
	evaluation := condition.NewEvaluation(ctx)
	for it := undecided.Iterator(); it.HasNext() && len(missing) > 0; {
		d, err := s.readRecord(evaluation, it.Next())
		if err != nil {
			return err
		}
		remaining := missing[:0]
		for _, f := range missing {
			if existing[f] = d.Has(f); !existing[f] {
				remaining = append(remaining, f)
			}
		}
		missing = remaining
	}
	return evaluation.Err()
}
