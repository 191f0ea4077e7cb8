package cluster

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// wordsAsk asks shards for documents by the words of their metadata; without statistics, for those of the
// query.
type wordsAsk struct {
	Query collection.KeywordQuery `json:"query"` // without filters, which have no form in JSON
	Only  []collection.Selection  `json:"only"`  // all of them let a document through
}

type wordsFound struct {
	answered
	Statistics *keywords.Statistics `json:"statistics,omitempty"`
	Hits       []foundHit           `json:"hits,omitzero"`
}

// doWords searches shards by words.
func (c *Cluster) doWords(ctx context.Context, a *asked, in *wordsAsk) (*answers[wordsFound], error) {
	return eachShard(ctx, c, a, func(h *held, out *wordsFound) error {
		q := in.Query
		if q.Statistics == nil {
			st, err := h.view.KeywordStatistics(ctx, keywords.Query{Text: q.Text, Mode: q.Mode})
			out.Statistics = &st
			return err
		}
		for i := range in.Only {
			filter, err := h.view.Filter(ctx, split(&in.Only[i], a.Of).in(h.Shard))
			if err != nil {
				return err
			}
			q.Filters = append(q.Filters, filter)
		}
		hits, err := h.view.SearchKeywords(ctx, q)
		if err != nil {
			return err
		}
		room := mostRead / len(a.Shards)
		for i := range hits {
			hit, err := h.found(&hits[i], q.Payload, &room)
			if err != nil {
				return err
			}
			out.Hits = append(out.Hits, hit)
		}
		return nil
	})
}

// SearchKeywords implements [collection.Keywords]: each shard tells first what the query finds in it, and is
// then searched with the sums of that, so that scores are those of one index as long as nothing changes
// between. Each shard has to answer, whatever the configuration says.
func (v *view) SearchKeywords(ctx context.Context, q collection.KeywordQuery) ([]search.Hit, error) {
	page := q.Page()
	if err := page.Check(); err != nil {
		return nil, err
	}
	check := keywords.Query{Text: q.Text, Mode: q.Mode}
	cfg := v.s.Config()
	if err := check.Check(*cfg.Keywords()); err != nil {
		return nil, err
	}
	in := wordsAsk{Query: q}
	in.Query.Filters, in.Query.Statistics = nil, nil
	in.Query.K, in.Query.Offset, in.Query.MinScore = page.End(), 0, nil
	for _, f := range q.Filters {
		if f == nil {
			continue
		}
		s, err := v.selectionOf(f)
		if err == nil {
			err = v.s.checkFields(ctx, s.Where)
		}
		if err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
		in.Only = append(in.Only, s)
	}
	_, counted, err := all[wordsFound](ctx, v.s, "words", every, &in)
	if err != nil {
		return nil, err
	}
	sum := &keywords.Statistics{}
	for _, shard := range sorted(counted) {
		st := counted[shard].Statistics
		if st == nil { // it has no documents
			continue
		}
		if err := sum.Add(st); err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	in.Query.Statistics = sum
	m, found, err := all[wordsFound](ctx, v.s, "words", every, &in)
	if err != nil {
		return nil, err
	}
	hits := map[int][]foundHit{}
	for shard, f := range found {
		hits[shard] = f.Hits
	}
	best, err := v.s.withPayloads(ctx, m, q.Payload, merged(hits, page.End()))
	if err != nil {
		return nil, err
	}
	return page.Hits(best[0]), nil
}
