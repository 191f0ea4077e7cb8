package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Page is the part of a ranking that is wanted: the K hits after the first Offset ones, and of
// these the ones that score MinScore at least. Pages of one ranking that follow one another have
// each of its hits once.
type Page struct {
	Offset   int
	K        int
	MinScore *float64 // nil means that every score will do
	Block    int      // of the ranking ([Paged]); 0 means K
}

// Check refuses ([ErrOption]) a page without hits or before the first one, more hits than can be
// counted, and a least score that is not finite.
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
		bad("least score %v; a finite number is needed", *s)
	}
	return errors.Join(errs...)
}

// End is the number of hits up to the end of the page.
func (p Page) End() int { return p.Offset + p.K }

// Hits returns the hits of the page from a ranking, which has the End best ones, or all if there are fewer.
func (p Page) Hits(ranked []Hit) []Hit {
	return pageHits(p, ranked, func(h *Hit) bool { return p.Enough(h.Score) })
}

// pageRanked is the same for a ranking by other means.
func (p Page) pageRanked(ranked []RankedHit) []RankedHit {
	return pageHits(p, ranked, func(h *RankedHit) bool { return p.MinScore == nil || h.Score >= *p.MinScore })
}

func pageHits[H any](p Page, ranked []H, enough func(*H) bool) []H {
	ranked = ranked[min(p.Offset, len(ranked)):min(p.End(), len(ranked))]
	return slices.DeleteFunc(ranked, func(h H) bool { return !enough(&h) })
}

// Enough reports whether the score of a hit is high enough. The least score is rounded to float32, as
// scores are printed: a printed score lets its own hit through.
func (p Page) Enough(score float32) bool { return p.MinScore == nil || score >= float32(*p.MinScore) }

// Sides is what to ask of each of two rankings that are fused to this page, in a collection of most
// documents. For the first pages that is three times K: a document that is third in both rankings
// may be the best of all. Pages that are further down need more, in blocks that double.
func (p Page) Sides(docs int) Page {
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

// SetPage asks for a page.
func (o *Options) SetPage(p Page) {
	o.K, o.Offset, o.MinScore, o.Block = p.K, p.Offset, p.MinScore, p.Block
}

// InBlocks reports whether [Paged] makes the answer of whole rankings.
func (o *Options) InBlocks() bool {
	p := o.Page()
	return p.Offset != 0 || p.MinScore != nil || o.Mode == Pruned && p.Block != 0 && p.Block < p.K
}

// Page is the part of the ranking that the options ask for.
func (o *Options) Page() Page {
	p := Page{Offset: o.Offset, K: o.K, MinScore: o.MinScore, Block: o.Block}
	if p.K == 0 {
		p.K = defaultK
	}
	return p
}

// Paged answers queries with the pages that options ask for, given how whole rankings are
// searched: from the best hit on, and whatever these score.
//
// A search that prunes may find documents, when it is asked for more of them, that it missed when
// it was asked for fewer. Its pages of K are therefore of a ranking of blocks: the first is what a
// search for K finds (or for Block), the next the other hits of one for 2·K, then one for 4·K, and so on.
// So no document comes twice, and one that is found late is not passed over.
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
		if depth <= p.Offset { // none of these is shown
			block.Payload, block.Matches = false, false
		}
		results, err := search(block)
		if err != nil {
			return nil, err
		}
		deepEnough := depth >= p.End() || !slices.ContainsFunc(results, func(r Result) bool { return len(r.Hits) == depth })
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

// appendDeeper adds to rankings the other hits of deeper ones, up to a number of hits.
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

// withoutHits returns hits without some others. Each is of a document of a part.
func withoutHits(hits, others []Hit) []Hit {
	known := make(map[DocumentKey]bool, len(others))
	for i := range others {
		known[DocumentKey{others[i].Shard, others[i].ID}] = true
	}
	return slices.DeleteFunc(hits, func(h Hit) bool { return known[DocumentKey{h.Shard, h.ID}] })
}

// countHits counts the hits of each part, if there are several.
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
