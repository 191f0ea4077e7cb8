package metadata

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/storage"
)

// corruptRunError makes a CorruptError of an ErrFormat, and names the run. Other errors name their
// cause themselves.
func corruptRunError(snap *storage.Snapshot, run uint32, err error) error {
	if errors.Is(err, ErrFormat) {
		return &storage.CorruptError{Path: snap.Path(), What: fmt.Sprintf("field run %d", run), Err: err}
	}
	return err
}

// openRun opens a stored run.
func openRun(snap *storage.Snapshot, s storage.FieldRun) (*Run, error) {
	run, err := Open(snap.FieldRun(s.ID))
	return run, corruptRunError(snap, s.ID, err)
}

// maxRunMemory bounds the memory of a run while it is built, whatever limit the caller passes.
var maxRunMemory int64 = math.MaxInt64 // a variable, so that tests see many runs

// NewBuilder returns a builder whose runs take about limit bytes of memory at most.
func NewBuilder(limit int64) *Builder { return &Builder{memoryLimit: min(limit, maxRunMemory)} }

// Empty reports whether no document was added since the last run.
func (b *Builder) Empty() bool { return b.docs.IsEmpty() }

// Full reports whether the added documents should become a run.
func (b *Builder) Full() bool { return b.memoryBytes > b.memoryLimit }

// Absorb merges the last runs of a state into the builder, as many as the merge policy says, and
// removes them from the state. snap must have these runs, too. Only their live documents are merged.
// It returns the absorbed runs.
func (b *Builder) Absorb(
	ctx context.Context, snap *storage.Snapshot, live *roaring.Bitmap, state *storage.State,
) (absorbed []storage.FieldRun, err error) {
	keep := len(state.FieldRuns)
	for ; keep > 0; keep-- {
		newest := state.FieldRuns[keep-1]
		if b.Full() || !runMergePolicy.Absorbs(b.docs.GetCardinality(), uint64(newest.Docs)) {
			break
		}
		run, err := openRun(snap, newest)
		if err != nil {
			return nil, err
		}
		if err := b.absorbRun(ctx, run, roaring.AndNot(live, &b.docs), snap.Payload); err != nil {
			return nil, corruptRunError(snap, newest.ID, err)
		}
	}
	absorbed, state.FieldRuns = state.FieldRuns[keep:], state.FieldRuns[:keep:keep]
	return absorbed, nil
}

// EncodedRun holds the keys and values of a run that will be written to an index.
type EncodedRun struct {
	Bytes        int // size of keys and values
	id           uint32
	keys, values [][]byte
}

// Run makes a run of the added documents, adds it to the state, and empties the builder.
func (b *Builder) Run(state *storage.State) (*EncodedRun, error) {
	v := &EncodedRun{id: state.NextFieldRun}
	err := b.write(func(key, value []byte) error {
		v.keys, v.values = append(v.keys, key), append(v.values, value)
		v.Bytes += len(key) + len(value)
		return nil
	})
	run := storage.FieldRun{ID: v.id, Docs: uint32(b.docs.GetCardinality()), Values: len(v.keys)}
	state.NextFieldRun++
	state.FieldRuns = append(slices.Clone(state.FieldRuns), run)
	*b = Builder{memoryLimit: b.memoryLimit}
	return v, err
}

// Put writes the run.
func (v *EncodedRun) Put(g *storage.Generation) error {
	if err := g.NewFieldRun(v.id); err != nil {
		return err
	}
	for i, key := range v.keys {
		if err := g.PutField(v.id, key, v.values[i]); err != nil {
			return err
		}
	}
	return nil
}
