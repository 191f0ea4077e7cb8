package index

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/storage"
)

// The field values derived from payloads are written in runs (package metadata): a build writes a
// run whenever the memory for it is full, and a change writes one with the documents whose payloads
// it sets. Documents keep their ordinals, so runs need not follow the segments.

// maxRunBytes bounds the memory of a run while it is built, whatever the budget.
var maxRunBytes int64 = 1 << 40 // a variable, so that tests see many runs

// newFieldBuilder returns a builder that takes an eighth of the memory budget, at least 4 MiB.
func newFieldBuilder(memory int64) *metadata.Builder {
	return metadata.NewBuilder(min(max(memory/8, 4<<20), maxRunBytes))
}

// liveDocs returns the ordinals that are not deleted, including those without tokens.
func liveDocs(snap *storage.Snapshot) *roaring.Bitmap {
	live := roaring.New()
	live.AddRange(0, uint64(snap.State().Docs))
	live.AndNot(snap.Tombstones())
	return live
}

// openSelector opens the field runs of a file.
func openSelector(snap *storage.Snapshot) (s *metadata.Selector, err error) {
	defer storage.Guard(snap.Path(), &err)()
	return metadata.NewSelector(snap, liveDocs(snap))
}

// withSelector calls use with the selector of the snapshot's state.
func (s *Snapshot) withSelector(use func(*metadata.Selector) error) (err error) {
	selector, err := s.state.selector()
	if err != nil {
		return err
	}
	defer storage.Guard(s.Path(), &err)()
	return use(selector)
}

// Verify checks everything that can be checked without the original vectors: it does
// [storage.Snapshot.Verify], and checks that the field runs follow from the payloads.
func (s *Snapshot) Verify(ctx context.Context) error {
	return verifyFileSnapshot(ctx, s.fileSnapshot)
}

func verifyFileSnapshot(ctx context.Context, snap *storage.Snapshot) (err error) {
	if err := snap.Verify(ctx); err != nil {
		return err
	}
	selector, err := openSelector(snap)
	if err != nil {
		return err
	}
	defer storage.Guard(snap.Path(), &err)()
	return selector.Verify(ctx)
}
