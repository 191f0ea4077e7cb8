package search

import (
	"cmp"
	"errors"
	"slices"

	"github.com/plaid-ir/plaid/search/fuse"
)

// RankedHit is a hit of a ranking whose score may come from other means than vectors.
type RankedHit struct {
	Hit   Hit     // Score is by vectors, if vectors found it
	Score float64 // in the ranking
}

// RankedHits converts hits, each with its own score.
func RankedHits(hits []Hit) []RankedHit {
	ranked := make([]RankedHit, len(hits))
	for i := range hits {
		ranked[i] = RankedHit{hits[i], float64(hits[i].Score)}
	}
	return ranked
}

// FuseRanked returns a page of the fusion of two rankings: by vectors, with weight alpha, and by
// words or other means, with weight 1 − alpha. p is the page of the fusion, and sides is that of
// each ranking, which [Page.RankingPage] returns for p. Documents are identified by id; the first
// hit of an id in a ranking counts, as a ranking may have a document whole and in passages. A
// document that both rankings have gets the hit of the vectors. Ties are ordered by shard and
// ordinal.
//
// The score of a document depends on how many hits of each ranking are fused. So that all pages are
// parts of one ranking, the first blocks of both are fused to as many documents, then blocks twice
// as long to as many more, whose scores are scaled so that none exceeds an earlier one, and so on.
func FuseRanked(m fuse.Method, alpha float64, p, sides Page, byVectors, others []RankedHit) ([]RankedHit, error) {
	if err := errors.Join(p.Check(), sides.Check()); err != nil {
		return nil, err
	}
	// Number the documents of both rankings in the order of ties.
	documents := make([]RankedHit, 0, len(byVectors)+len(others))
	indexByID := make(map[string]int, cap(documents))
	for _, ranking := range [][]RankedHit{byVectors, others} {
		for _, h := range ranking {
			if _, known := indexByID[h.Hit.ID]; !known {
				indexByID[h.Hit.ID] = 0
				documents = append(documents, h)
			}
		}
	}
	slices.SortStableFunc(documents, func(a, b RankedHit) int {
		return cmp.Or(cmp.Compare(a.Hit.Shard, b.Hit.Shard), cmp.Compare(a.Hit.Ordinal, b.Hit.Ordinal))
	})
	for i := range documents {
		indexByID[documents[i].Hit.ID] = i
	}
	// toFuse converts a ranking, and keeps the first hit of each document.
	toFuse := func(ranking []RankedHit) []fuse.ScoredDocument {
		hits, seen := make([]fuse.ScoredDocument, 0, len(ranking)), make([]bool, len(documents))
		for _, h := range ranking {
			if i := indexByID[h.Hit.ID]; !seen[i] {
				seen[i] = true
				hits = append(hits, fuse.ScoredDocument{Ordinal: uint32(i), Score: h.Score})
			}
		}
		return hits
	}
	// Fuse longer and longer blocks until they fill the page.
	out, scale, emitted := make([]RankedHit, 0, min(p.End(), len(documents))), 1.0, make([]bool, len(documents))
	for depth := max(sides.Block, 1); ; depth *= 2 {
		best, err := fuse.Fuse(m, len(documents), alpha,
			toFuse(firstHits(byVectors, depth)), toFuse(firstHits(others, depth)))
		if err != nil {
			return nil, err
		}
		isLast := depth >= max(len(byVectors), len(others))
		for _, h := range best {
			if len(out) == depth && !isLast {
				break
			}
			if !emitted[h.Ordinal] {
				emitted[h.Ordinal] = true
				out = append(out, RankedHit{documents[h.Ordinal].Hit, float64(scale * h.Score)})
			}
		}
		if isLast || len(out) >= p.End() {
			return p.pageRanked(out), nil
		}
		if len(out) > 0 {
			scale = min(scale, out[len(out)-1].Score)
		}
	}
}

// firstHits returns the first n hits of a ranking, or all.
func firstHits(ranked []RankedHit, n int) []RankedHit { return ranked[:min(n, len(ranked))] }

// MatchRanked adds matches to hits that vectors did not find, or to their passages, as
// [Options].Matches does. search searches these documents for the query.
func MatchRanked(hits []RankedHit, search func(Options) ([]Hit, error)) error {
	hitsByID := map[string][]*Hit{}
	ids := []string{}
	add := func(h *Hit) {
		if hitsByID[h.ID] == nil {
			ids = append(ids, h.ID)
		}
		hitsByID[h.ID] = append(hitsByID[h.ID], h)
	}
	for i := range hits {
		h := &hits[i].Hit
		if len(h.Passages) == 0 {
			add(h)
		}
		for j := range h.Passages {
			add(&h.Passages[j])
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := search(Options{K: len(ids), Mode: Candidates, Candidates: ids, AllowMissing: true, Matches: true})
	for i := range found {
		for _, h := range hitsByID[found[i].ID] {
			h.Matches, h.Tokens = found[i].Matches, found[i].Tokens
		}
	}
	return err
}
