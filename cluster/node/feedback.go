package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// feedback tells what feedback takes of documents of a shard.
func feedback(ctx context.Context, snap *index.Snapshot, l *wire.Look, f *wire.Found) error {
	q, a := l.Feedback, &wire.FeedbackFound{}
	f.Feedback = a
	for _, code := range q.Centroids {
		if int64(code) >= int64(snap.Header().Centroids) {
			return fmt.Errorf("%w: centroid %d of %d", wire.ErrMessage, code, snap.Header().Centroids)
		}
	}
	// Those that were deleted since they were found count no more.
	live := slices.DeleteFunc(slices.Clone(q.Ordinals), func(o uint32) bool { return o >= snap.State().Docs || !snap.Live(o) })
	switch {
	case q.IDs != nil:
		docs, missing, err := snap.Named(ctx, q.IDs)
		if err != nil {
			return err
		}
		filled, _ := snap.LiveSet() // without those that have no tokens, which are found by nothing
		for it := docs.Iterator(); it.HasNext(); {
			if o := it.Next(); filled == nil || filled[o/64]>>(o%64)&1 == 1 {
				a.Ordinals = append(a.Ordinals, o)
			}
		}
		a.Missing = missing
	case q.Ordinals != nil && q.Centroids == nil:
		docs := map[uint32]int{}
		var err error
		if a.Of, err = search.Counts(ctx, snap, live, q.Tokens, docs); err != nil {
			return err
		}
		a.Centroids = slices.Sorted(maps.Keys(docs))
		for _, code := range a.Centroids {
			a.Docs = append(a.Docs, uint64(docs[code]))
		}
	case q.Ordinals != nil:
		dim := snap.Dim()
		if int64(len(q.Centroids))*int64(dim) > maxLook/4 {
			return fmt.Errorf("%w: %d centroids of dimension %d", wire.ErrMessage, len(q.Centroids), dim)
		}
		all := make([]float32, len(q.Centroids)*dim)
		if err := search.Sums(ctx, snap, live, q.Tokens, q.Centroids, slices.Collect(slices.Chunk(all, dim))); err != nil {
			return err
		}
		for _, x := range all {
			a.Sums = binary.LittleEndian.AppendUint32(a.Sums, math.Float32bits(x))
		}
	default:
		a.Docs, a.Live = make([]uint64, len(q.Centroids)), int64(snap.State().Live)
		return search.Frequencies(ctx, snap, q.Centroids, a.Docs)
	}
	return nil
}
