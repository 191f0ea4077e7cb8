package search

import (
	"cmp"
	"errors"
	"slices"

	"github.com/plaid-ir/plaid/search/fuse"
)

// RankedHit is a hit of a ranking, whose score may be of other means than vectors.
type RankedHit struct {
	Hit   Hit     // with a score by vectors, if they have found it
	Score float64 // in the ranking
}

// Ranked are hits with their own scores.
func Ranked(hits []Hit) []RankedHit {
	ranked := make([]RankedHit, len(hits))
	for i := range hits {
		ranked[i] = RankedHit{hits[i], float64(hits[i].Score)}
	}
	return ranked
}

// FuseRanked is a page of what vectors have found and what words have, or another means: the
// former counts alpha, the latter the rest. Each side is to have found what [Page.Sides] asks for.
// A document is known by its id, and what one side
// has found of it first counts: it may be there as a whole and in passages. What both have found
// is as the vectors have it. Equal ones are in the order of their places.
//
// What a document scores depends on how many of each side are fused. So that pages are of one
// ranking, the first blocks of the sides are fused to as many documents, and then twice as much of
// them to as many that follow, with scores that are scaled to be no higher, and so on.
func FuseRanked(m fuse.Method, alpha float64, p, sides Page, byVectors, others []RankedHit) ([]RankedHit, error) {
	if err := errors.Join(p.Check(), sides.Check()); err != nil {
		return nil, err
	}
	documents := make([]RankedHit, 0, len(byVectors)+len(others))
	indexByID := make(map[string]int, cap(documents))
	for _, toFuse := range [][]RankedHit{byVectors, others} {
		for _, h := range toFuse {
			if _, there := indexByID[h.Hit.ID]; !there {
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
	side := func(emitted []RankedHit) []fuse.ScoredDocument {
		hits, seen := make([]fuse.ScoredDocument, 0, len(emitted)), make([]bool, len(documents))
		for _, h := range emitted {
			if i := indexByID[h.Hit.ID]; !seen[i] {
				seen[i] = true
				hits = append(hits, fuse.ScoredDocument{Ordinal: uint32(i), Score: h.Score})
			}
		}
		return hits
	}
	out, scale, ranked := make([]RankedHit, 0, min(p.End(), len(documents))), 1.0, make([]bool, len(documents))
	for depth := max(sides.Block, 1); ; depth *= 2 {
		best, err := fuse.Fuse(m, len(documents), alpha, side(firstHits(byVectors, depth)), side(firstHits(others, depth)))
		if err != nil {
			return nil, err
		}
		last := depth >= max(len(byVectors), len(others))
		for _, h := range best {
			if len(out) == depth && !last {
				break
			}
			if !ranked[h.Ordinal] {
				ranked[h.Ordinal] = true
				out = append(out, RankedHit{documents[h.Ordinal].Hit, float64(scale * h.Score)})
			}
		}
		if last || len(out) >= p.End() {
			return p.pageRanked(out), nil
		}
		if len(out) > 0 {
			scale = min(scale, out[len(out)-1].Score)
		}
	}
}

// firstHits returns the first n of a ranking, or all.
func firstHits(ranked []RankedHit, n int) []RankedHit { return ranked[:min(n, len(ranked))] }

// MatchRanked tells what matched of hits that were not found by vectors alone, or of the passages
// that they bring, as [Options].Matches does: look searches for a query among them.
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
