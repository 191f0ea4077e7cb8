package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/encode"
)

// pieces gives the id of the piece that each vector is of, by the texts and the model that
// the vectors were made of.
func (m *matrix) pieces(ctx context.Context, corpus, model string) (ids []int32, err error) {
	e, err := encode.OpenContext(ctx, model, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	doc := 0
	for text, err := range encode.JSONL(ctx, corpus) {
		if err != nil {
			return nil, err
		}
		tokens, err := e.Tokenize(encode.Document, text.Full())
		if err != nil {
			return nil, fmt.Errorf("document %q: %w", text.ID, err)
		}
		for _, t := range tokens {
			if t.Kept {
				ids = append(ids, t.ID)
			}
		}
		if doc++; doc >= len(m.offsets) || len(ids) != int(m.offsets[doc]) || m.ids[doc-1] != text.ID {
			return nil, fmt.Errorf("document %q: vectors are not those of %s by %s", text.ID, corpus, model)
		}
	}
	if doc != len(m.ids) {
		return nil, fmt.Errorf("%d documents of %d have vectors", len(m.ids), doc)
	}
	return ids, nil
}

// byPiece gives centroids to pieces in proportion to a power of how often they occur. Those
// that would have fewer than one share theirs: they are parted into groups by k-means.
func (s *training) byPiece(ctx context.Context, w io.Writer, k int, ids []int32, power float64) error {
	start := processorTime()
	members := make([][]uint32, int(slices.Max(ids))+1)
	for i, row := range s.rows {
		members[ids[row]] = append(members[ids[row]], uint32(i))
	}
	var all float64
	for _, rows := range members {
		all += math.Pow(float64(len(rows)), power)
	}
	const shared = -1
	var groups [][]uint32
	var weights []float64
	var pool []uint32
	var poolWeight float64
	groupOf := make([]int, len(members))
	for id, rows := range members {
		if weight := math.Pow(float64(len(rows)), power); weight*float64(k) >= all {
			groupOf[id] = len(groups)
			groups, weights = append(groups, rows), append(weights, weight)
		} else {
			groupOf[id] = shared
			pool, poolWeight = append(pool, rows...), poolWeight+weight
		}
	}
	own := len(groups)
	c := newClusters(s.x, s.docs.dim, s.backend)
	if len(pool) > 0 {
		slices.Sort(pool)
		_, parts, err := c.split(ctx, pool, max(int(math.Sqrt(float64(k)*poolWeight/all)), 1))
		if err != nil {
			return err
		}
		for _, rows := range parts {
			groups, weights = append(groups, rows), append(weights, poolWeight*float64(len(rows))/float64(len(pool)))
		}
	}
	if err := c.within(ctx, groups, shares(weights, k)); err != nil {
		return err
	}
	took := processorTime() - start
	for code, g := range c.owner {
		if g >= own {
			c.owner[code] = shared
		}
	}
	home := make([]int, len(s.heldRows))
	for i, row := range s.heldRows {
		home[i] = groupOf[ids[row]]
	}
	name := fmt.Sprintf("by piece, power %v (%.3f of vectors share)", power, float64(len(pool))/float64(len(s.rows)))
	return s.fit(ctx, w, c, &trained{name: name, groups: len(groups), took: took, home: home})
}
