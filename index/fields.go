package index

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/storage"
)

// What is derived from payloads is written in runs (package metadata): a build writes
// them as it goes, each when the memory for it is full, and a change writes one with
// the documents whose payloads it brings. Ordinals keep their meaning, so that runs need
// not follow the segments.

// maxRunBytes bounds what a run may have in memory while it is made, whatever the budget.
var maxRunBytes int64 = 1 << 40 // a variable, so that tests see many runs

func newFieldBuilder(memory int64) *metadata.Builder {
	return metadata.NewBuilder(min(max(memory/8, 4<<20), maxRunBytes))
}

// liveDocs are the documents of a view that are not deleted, also those without tokens.
func liveDocs(v *storage.Snapshot) *roaring.Bitmap {
	live := roaring.New()
	live.AddRange(0, uint64(v.State().Docs))
	live.AndNot(v.Tombstones())
	return live
}

// openSelector opens the runs of a view.
func openSelector(v *storage.Snapshot) (s *metadata.Selector, err error) {
	defer storage.Guard(v.Path(), &err)()
	return metadata.NewSelector(v, liveDocs(v))
}

// withSelector calls a function with what finds the documents of conditions.
func (s *Snapshot) withSelector(use func(*metadata.Selector) error) (err error) {
	selector, err := s.state.selector()
	if err != nil {
		return err
	}
	defer storage.Guard(s.Path(), &err)()
	return use(selector)
}

// Verify checks everything that can be checked without the original vectors:
// what [storage.Snapshot.Verify] does, and that what is derived from payloads follows from
// them.
func (s *Snapshot) Verify(ctx context.Context) error {
	return verifyFileSnapshot(ctx, s.fileSnapshot)
}

func verifyFileSnapshot(ctx context.Context, v *storage.Snapshot) (err error) {
	if err := v.Verify(ctx); err != nil {
		return err
	}
	selector, err := openSelector(v)
	if err != nil {
		return err
	}
	defer storage.Guard(v.Path(), &err)()
	return selector.Verify(ctx)
}
