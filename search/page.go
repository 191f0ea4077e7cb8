package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Page is a part of a ranking: the K hits after the first Offset ones, without hits that score less
// than MinScore. Consecutive pages of a ranking have each of its hits once.
type Page struct {
	Offset   int
	K        int
	MinScore *float64 // nil means no minimum
	Block    int      // of the ranking ([Paged]). 0 means K
}

// Check returns an [ErrOption] for a page without hits or before the first one, for more hits than
// an int can count, and for a minimum score that is not finite.
func (p Page) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...)))
	}
	if p.K < 1 {
		bad("k = %d; at least 1 is needed", p.K)
	}
	switch {
	case p.Offset < 0:
		bad("offset = %d; at least 0 is needed", p.Offset)
	case p.Offset > math.MaxInt-max(p.K, 0):
		bad("offset %d and k %d are too many together", p.Offset, p.K)
	}
	if p.Block < 0 {
		bad("a block of %d documents", p.Block)
	}
	if s := p.MinScore; s != nil && (math.IsNaN(*s) || math.IsInf(*s, 0)) {
		bad("min_score %v; a finite number is needed", *s)
	}
	return errors.Join(errs...)
}

// End returns the number of hits up to the end of the page.
func (p Page) End() int { return p.Offset + p.K }

// Hits returns the hits of the page. ranked must have the End best hits, or all if there are fewer.
func (p Page) Hits(ranked []Hit) []Hit {
	return pageHits(p, ranked, func(h *Hit) bool { return p.HasMinScore(h.Score) })
}

// pageRanked is Hits for a ranking by other means than vectors.
func (p Page) pageRanked(ranked []RankedHit) []RankedHit {
	return pageHits(p, ranked, func(h *RankedHit) bool { return p.MinScore == nil || h.Score >= *p.MinScore })
}

// pageHits returns the hits of a page that keep returns true for.
func pageHits[H any](p Page, ranked []H, keep func(*H) bool) []H {
	ranked = ranked[min(p.Offset, len(ranked)):min(p.End(), len(ranked))]
	return slices.DeleteFunc(ranked, func(h H) bool { return !keep(&h) })
}

// HasMinScore reports whether the score of a hit reaches MinScore. MinScore is rounded to float32, as
// printed scores are: a printed score admits its own hit.
func (p Page) HasMinScore(score float32) bool {
	return p.MinScore == nil || score >= float32(*p.MinScore)
}

// RankingPage returns the page to request from each of two rankings that are fused to this page, in a
// collection of this many documents. For the first pages its K is three times K: a document that is
// third in both rankings may be the best of all. Later pages need more, in blocks that double.
func (p Page) RankingPage(docs int) Page {
	docs = max(docs, 1)
	sides := Page{K: docs}
	if p.K <= docs/3 {
		sides.K = max(3*p.K, 1)
	}
	sides.Block = sides.K
	for sides.K < min(p.End(), docs) {
		sides.K = min(2*sides.K, docs)
	}
	return sides
}

// SetPage sets the page of the options.
func (o *Options) SetPage(p Page) {
	o.K, o.Offset, o.MinScore, o.Block = p.K, p.Offset, p.MinScore, p.Block
}

// NeedsPaging reports whether [Paged] has to assemble the answer from rankings that begin with the
// best hit.
func (o *Options) NeedsPaging() bool {
	p := o.Page()
	return p.Offset != 0 || p.MinScore != nil || o.Mode == Pruned && p.Block != 0 && p.Block < p.K
}

// Page returns the page that the options request.
func (o *Options) Page() Page {
	p := Page{Offset: o.Offset, K: o.K, MinScore: o.MinScore, Block: o.Block}
	if p.K == 0 {
		p.K = defaultK
	}
	return p
}

// Paged returns the pages that the options request. search returns rankings from the best hit on,
// without a minimum score.
//
// A pruning search for more documents may find some that a search for fewer missed. So pages are
// parts of a ranking of blocks: the first block is a search for K documents (or Block), the next
// has the other hits of a search for 2·K, then for 4·K, and so on. No document comes twice, and
// documents that are found late are not lost.
func Paged(o Options, search func(Options) ([]Result, error)) ([]Result, error) {
	p := o.Page()
	if err := p.Check(); err != nil {
		return nil, err
	}
	depth := p.End()
	if o.Mode == Pruned {
		depth = cmp.Or(p.Block, p.K)
	}
	var ranked []Result
	for {
		block := o
		block.SetPage(Page{K: depth})
		if depth <= p.Offset { // the page begins behind these hits
			block.Payload, block.Matches = false, false
		}
		results, err := search(block)
		if err != nil {
			return nil, err
		}
		mayHaveMore := func(r Result) bool { return len(r.Hits) == depth }
		deepEnough := depth >= p.End() || !slices.ContainsFunc(results, mayHaveMore)
		ranked = appendDeeper(ranked, results, depth)
		if deepEnough {
			break
		}
		if depth *= 2; depth < 0 {
			depth = p.End()
		}
	}
	for i := range ranked {
		r := &ranked[i]
		r.Hits, r.K, r.Offset = p.Hits(r.Hits), p.K, p.Offset
		r.Stats.countHits(r.Hits)
	}
	return ranked, nil
}

// appendDeeper returns the hits of rankings followed by the other hits of deeper ones, up to a
// limit. It reuses deeper.
func appendDeeper(ranked, deeper []Result, limit int) []Result {
	for i := range ranked {
		shallow, r := &ranked[i], &deeper[i]
		added := withoutHits(r.Hits, shallow.Hits)
		r.Hits = append(shallow.Hits, added[:min(len(added), limit-len(shallow.Hits))]...)
		st := shallow.Stats
		st.Add(r.Stats)
		st.Queries, st.Allowed, st.FilterMissing = r.Stats.Queries, r.Stats.Allowed, r.Stats.FilterMissing
		for j := range st.Shards {
			st.Shards[j].Allowed = r.Stats.Shards[j].Allowed
		}
		r.Stats = st
	}
	return deeper
}

// withoutHits returns hits without the documents of others.
func withoutHits(hits, others []Hit) []Hit {
	known := make(map[DocumentKey]bool, len(others))
	for i := range others {
		known[DocumentKey{others[i].Shard, others[i].ID}] = true
	}
	return slices.DeleteFunc(hits, func(h Hit) bool { return known[DocumentKey{h.Shard, h.ID}] })
}

// countHits counts the hits of each shard, if there are several.
func (s *Stats) countHits(hits []Hit) {
	for i := range s.Shards {
		s.Shards[i].Hits = 0
	}
	for i := range hits {
		if p := hits[i].Shard; p < len(s.Shards) {
			s.Shards[p].Hits++
		}
	}
}
