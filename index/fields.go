package index

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/storage"
)

// What is derived from payloads is written in runs (package metadata): a build writes
// them as it goes, each when the memory for it is full, and a change writes one with
// the documents whose payloads it brings. Ordinals keep their meaning, so that runs need
// not follow the segments.

// fieldBytes bounds what a run may have in memory while it is made, whatever the budget.
var fieldBytes int64 = 1 << 40 // a variable, so that tests see many runs

func newGatherer(memory int64) *metadata.Gatherer {
	return metadata.NewGatherer(min(max(memory/8, 4<<20), fieldBytes))
}

// documents are those of a view, as runs need them.
type documents struct{ *storage.View }

// Guard makes errors of faults in the mapped file.
func (d documents) Guard(read func() error) (err error) {
	defer storage.Guard(d.Path(), &err)()
	return read()
}

// liveDocs are the documents of a view that are not deleted, also those without tokens.
func liveDocs(v *storage.View) *roaring.Bitmap {
	live := roaring.New()
	live.AddRange(0, uint64(v.State().Docs))
	live.AndNot(v.Tombstones())
	return live
}

func storedRuns(s *storage.State) []metadata.Stored {
	runs := make([]metadata.Stored, len(s.FieldRuns))
	for i, r := range s.FieldRuns {
		runs[i] = metadata.Stored{ID: r.ID, Docs: r.Docs}
	}
	return runs
}

// selectorOf opens the runs of a view.
func selectorOf(v *storage.View) (s *metadata.Selector, err error) {
	err = documents{v}.Guard(func() error {
		state := v.State()
		s, err = metadata.NewSelector(documents{v}, liveDocs(v), storedRuns(&state))
		return err
	})
	return s, runFault(v.Path(), err)
}

// withSelector calls a function with what finds the documents of conditions.
func (s *Snapshot) withSelector(use func(*metadata.Selector) error) error {
	selector, err := s.picture.selector()
	if err != nil {
		return err
	}
	return runFault(s.Path(), documents{s.view}.Guard(func() error { return use(selector) }))
}

// runFault is the error of a damaged run.
func runFault(path string, err error) error {
	var bad *metadata.RunError
	if errors.As(err, &bad) {
		return &storage.CorruptError{Path: path, What: fmt.Sprintf("field run %d", bad.Run), Err: bad.Err}
	}
	if errors.Is(err, metadata.ErrFormat) {
		return &storage.CorruptError{Path: path, What: "field runs", Err: err}
	}
	return err
}

// absorbRuns lets a gatherer take in the last runs of a state, which the snapshot has as
// well. The ones that it took in leave the state and are returned.
func absorbRuns(ctx context.Context, g *metadata.Gatherer, snap *Snapshot, state *storage.State) (old []storage.FieldRun, err error) {
	n, err := g.Absorb(ctx, documents{snap.view}, liveDocs(snap.view), storedRuns(state))
	if err != nil {
		return nil, runFault(snap.Path(), err)
	}
	keep := len(state.FieldRuns) - n
	old, state.FieldRuns = state.FieldRuns[keep:], state.FieldRuns[:keep:keep]
	return old, nil
}

// fieldRun is a run on its way into the file.
type fieldRun struct {
	*metadata.Values
	id uint32
}

// endRun makes a run of what has been gathered, and a place for it in the state.
func endRun(g *metadata.Gatherer, state *storage.State) (*fieldRun, error) {
	values, err := g.Run()
	run := &fieldRun{values, state.NextFieldRun}
	state.NextFieldRun++
	state.FieldRuns = append(slices.Clone(state.FieldRuns), storage.FieldRun{ID: run.id, Docs: values.Docs, Values: len(values.Keys)})
	return run, err
}

func (r *fieldRun) put(g *storage.Generation) error {
	if err := g.NewFieldRun(r.id); err != nil {
		return err
	}
	for i, key := range r.Keys {
		if err := g.PutField(r.id, key, r.Values.Values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Verify checks everything that can be checked without the original vectors:
// what [storage.View.Verify] does, and that what is derived from payloads follows from
// them.
func (s *Snapshot) Verify(ctx context.Context) error {
	return verifyView(ctx, s.view)
}

func verifyView(ctx context.Context, v *storage.View) error {
	if err := v.Verify(ctx); err != nil {
		return err
	}
	selector, err := selectorOf(v)
	if err != nil {
		return err
	}
	return runFault(v.Path(), documents{v}.Guard(func() error { return selector.Verify(ctx) }))
}
