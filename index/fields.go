package index

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/metadata"
	"github.com/plaid-ir/plaid/storage"
)

// What is derived from payloads is written in runs (package metadata): a build writes
// them as it goes, each when the memory for it is full, and a change writes one with
// the documents whose payloads it brings. Of two runs with a document the newer one
// counts, and ordinals keep their meaning, so that runs need not follow the segments.
// As for those, a new run takes in the ones before it that are at most twice as large.

// mergeRun is the size in documents above which a run is left alone.
const mergeRun = 1 << 16

// fieldBytes bounds what a run may take in memory while it is made, whatever the budget.
var fieldBytes int64 = 1 << 40 // a variable, so that tests see many runs

// fieldRuns writes runs.
type fieldRuns struct {
	builder metadata.Builder
	limit   int64 // bytes that the builder may take
}

func newFieldRuns(memory int64) *fieldRuns {
	return &fieldRuns{limit: min(max(memory/8, 4<<20), fieldBytes)}
}

// take returns the values of a run of what has been gathered, and begins anew.
func (f *fieldRuns) take(state *storage.State) (run *fieldRun, err error) {
	run = &fieldRun{id: state.NextFieldRun}
	err = f.builder.Write(func(key, value []byte) error {
		run.keys, run.values = append(run.keys, key), append(run.values, value)
		run.bytes += len(key) + len(value)
		return nil
	})
	state.NextFieldRun++
	state.FieldRuns = append(slices.Clone(state.FieldRuns), storage.FieldRun{
		ID: run.id, Docs: uint32(f.builder.Docs().GetCardinality()), Values: len(run.keys),
	})
	f.builder = metadata.Builder{}
	return run, err
}

// fieldRun is a run on its way into the file.
type fieldRun struct {
	id           uint32
	keys, values [][]byte
	bytes        int
}

func (r *fieldRun) put(g *storage.Generation) error {
	if err := g.NewFieldRun(r.id); err != nil {
		return err
	}
	for i, key := range r.keys {
		if err := g.PutField(r.id, key, r.values[i]); err != nil {
			return err
		}
	}
	return nil
}

// absorb takes in the last runs of the state, which the snapshot has as well, while
// they are no more than twice as large, and returns those that it took in.
func (f *fieldRuns) absorb(ctx context.Context, snap *Snapshot, state *storage.State) (old []uint32, err error) {
	for len(state.FieldRuns) > 0 {
		last := state.FieldRuns[len(state.FieldRuns)-1]
		if last.Docs > mergeRun || uint64(last.Docs) > 2*f.builder.Docs().GetCardinality() || f.builder.Bytes() > f.limit {
			return old, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		run, err := snap.openRun(last)
		if err != nil {
			return nil, err
		}
		keep := snap.liveDocs()
		keep.AndNot(f.builder.Docs())
		if err := f.builder.Absorb(run, keep); err != nil {
			return nil, snap.badRun(last, err)
		}
		state.FieldRuns = state.FieldRuns[:len(state.FieldRuns)-1]
		old = append(old, last.ID)
	}
	return old, nil
}

func (s *Snapshot) openRun(r storage.FieldRun) (*metadata.Run, error) {
	run, err := metadata.Open(s.FieldRun(r.ID))
	if err != nil {
		return nil, s.badRun(r, err)
	}
	return run, nil
}

func (s *Snapshot) badRun(r storage.FieldRun, err error) error {
	return &storage.CorruptError{Path: s.Path(), What: fmt.Sprintf("field run %d", r.ID), Err: err}
}

// coveredRun is a run with the live documents for which it counts.
type coveredRun struct {
	storage.FieldRun
	*metadata.Run
	counts *roaring.Bitmap
	all    bool // it covers no others
}

// runs are the runs of the snapshot, and the live documents that are in none.
func (s *Snapshot) runs(live *roaring.Bitmap) (runs []coveredRun, rest *roaring.Bitmap, err error) {
	rest = live.Clone()
	for _, r := range slices.Backward(s.State().FieldRuns) {
		run, err := s.openRun(r)
		if err != nil {
			return nil, nil, err
		}
		counts := roaring.And(run.Docs(), rest)
		rest.AndNot(run.Docs())
		if !counts.IsEmpty() {
			runs = append(runs, coveredRun{r, run, counts, counts.GetCardinality() == run.Docs().GetCardinality()})
		}
	}
	return runs, rest, nil
}

// Verify checks everything that can be checked without the original vectors:
// what [storage.View.Verify] does, and that what is derived from payloads follows from
// them.
func (s *Snapshot) Verify(ctx context.Context) (err error) {
	if err := s.view.Verify(ctx); err != nil {
		return err
	}
	defer storage.Guard(s.Path(), &err)()
	runs, _, err := s.runs(s.liveDocs())
	if err != nil {
		return err
	}
	for _, r := range runs {
		if err := s.verifyRun(ctx, &r); err != nil {
			return err
		}
	}
	return nil
}

// verifyRun compares a run with one that is made of the payloads.
func (s *Snapshot) verifyRun(ctx context.Context, r *coveredRun) error {
	var stored, derived metadata.Builder
	if err := stored.Absorb(r.Run, r.counts); err != nil {
		return s.badRun(r.FieldRun, err)
	}
	for it := r.counts.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		ordinal := it.Next()
		payload, err := s.Payload(ordinal)
		if err != nil {
			return err
		}
		derived.Add(ordinal, payload)
	}
	if stored.Overflow() || derived.Overflow() { // which fields were kept depends on other documents
		return nil
	}
	was := map[string][]byte{}
	err := stored.Write(func(key, value []byte) error {
		was[string(key)] = value
		return nil
	})
	if err != nil {
		return err
	}
	return derived.Write(func(key, value []byte) error { // the first of them names the fields
		if !bytes.Equal(was[string(key)], value) {
			return s.badRun(r.FieldRun, fmt.Errorf("it does not follow from the payloads, by value %q", key))
		}
		return nil
	})
}
