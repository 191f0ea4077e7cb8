package index

import (
	"context"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage"
)

// Warm reads what searches read and checks its checksums: codes, residuals, factors,
// posting lists, and ids. The first searches of an index do that otherwise, each for
// what it meets, which makes them slower by a factor of a hundred. On threads
// goroutines, which progress is called on (nil: nobody asks); 0: one a processor. What is read stays checked for all snapshots of the
// file; whether the system keeps its pages in memory is not up to this program.
//
// Errors: [storage.ErrCorrupt], and that of the context.
func (s *Snapshot) Warm(ctx context.Context, threads int, progress func(Progress)) error {
	total := s.Chunks() + s.Segments()
	var done atomic.Int64
	err := parallel.Do(ctx, total, threads, func(i int) (err error) {
		defer storage.Guard(s.Path(), &err)()
		if i < s.Chunks() {
			_, err = s.Chunk(i, storage.All)
		} else {
			err = s.warmPostings(ctx, i-s.Chunks())
		}
		if n := done.Add(1); progress != nil && err == nil {
			progress(Progress{"warm", n, int64(total), "parts"})
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.CheckIDs()
}

func (s *Snapshot) warmPostings(ctx context.Context, segment int) error {
	for c := 0; c < s.Header().Centroids; c += storage.PostingBlock {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := s.Postings(segment, uint32(c)); err != nil {
			return err
		}
	}
	return nil
}
