package search

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// visitTokens calls visit for the first maxTokens tokens of each document.
func visitTokens(
	ctx context.Context, snap *index.Snapshot, ordinals []uint32, maxTokens int,
	visit func(ch *kernels.Chunk, token int),
) (err error) {
	defer storage.Guard(snap.Path(), &err)()
	for _, ordinal := range ordinals {
		if err := ctx.Err(); err != nil {
			return err
		}
		ch, doc, err := documentChunk(snap, ordinal)
		if err != nil {
			return err
		}
		lo, hi := int(ch.Offsets[doc]), int(ch.Offsets[doc+1])
		for token := lo; token < min(hi, lo+maxTokens); token++ {
			visit(ch, token)
		}
	}
	return nil
}

// CountByCentroid adds to docs, for each centroid, how many of the documents have it among their
// first tokens. It returns the number of these documents: all passages of a document count as one.
func CountByCentroid(
	ctx context.Context, snap *index.Snapshot, ordinals []uint32, tokens int, docs map[uint32]int,
) (total int, err error) {
	var ids []string // documents
	ordinalsByID := map[string][]uint32{}
	for _, ordinal := range ordinals {
		id := snap.DocumentOf(ordinal)
		if ordinalsByID[id] == nil {
			ids = append(ids, id)
		}
		ordinalsByID[id] = append(ordinalsByID[id], ordinal)
	}
	lastDocument := map[uint32]int{} // the last document that has the centroid, + 1
	for i, id := range ids {
		err := visitTokens(ctx, snap, ordinalsByID[id], tokens, func(ch *kernels.Chunk, token int) {
			if code := ch.Code(token); lastDocument[code] != i+1 {
				lastDocument[code] = i + 1
				docs[code]++
			}
		})
		if err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// SumByCentroid adds those of the first tokens of the documents that have one of the centroids codes
// to the sum of their centroid.
func SumByCentroid(
	ctx context.Context, snap *index.Snapshot, ordinals []uint32, tokens int, codes []uint32, sums [][]float32,
) error {
	sumIndex := make(map[uint32]int, len(codes))
	for i, code := range codes {
		sumIndex[code] = i
	}
	row := make([]float32, snap.Dim())
	return visitTokens(ctx, snap, ordinals, tokens, func(ch *kernels.Chunk, token int) {
		i, wanted := sumIndex[ch.Code(token)]
		if !wanted {
			return
		}
		snap.Quantizer().DecodeTokens(row, ch, token, token+1)
		for j, x := range row {
			sums[i][j] += x
		}
	})
}

// CentroidFrequencies adds to docs how many live documents have a token with each of some centroids.
func CentroidFrequencies(ctx context.Context, snap *index.Snapshot, codes []uint32, docs []uint64) (err error) {
	defer storage.Guard(snap.Path(), &err)()
	deleted := snap.Tombstones()
	for i, code := range codes {
		if i%256 == 255 && ctx.Err() != nil {
			return ctx.Err()
		}
		for seg := range snap.Segments() {
			list, err := snap.Postings(seg, code)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				continue
			}
			set := roaring.New()
			if _, err := set.FromBuffer(list); err != nil {
				return postingsError(snap.Path(), code, err)
			}
			docs[i] += set.GetCardinality() - set.AndCardinality(deleted)
		}
	}
	return nil
}
