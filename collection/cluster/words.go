package cluster

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
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
	var wheres []*condition.Condition
	for i := range in.Only {
		wheres = append(wheres, in.Only[i].Where)
	}
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
	}, wheres...)
}

// SearchKeywords implements [collection.Keywords]: shards count the words of the query first, and are then
// searched with the sums, so that scores are those of one index as long as nothing changes between. All shards
// have to answer, also where partial answers are allowed.
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
		if err != nil {
			return nil, err
		}
		in.Only = append(in.Only, s)
	}
	var best [][]search.Hit
	err := v.s.settled(ctx, func() (err error) {
		counted := in
		if counted.Query.Statistics, err = v.count(ctx, &in); err != nil {
			return err
		}
		m, found, err := all[wordsFound](ctx, v.s, "words", every, &counted)
		if err != nil {
			return err
		}
		hits := map[int][]foundHit{}
		for shard, f := range found {
			hits[shard] = f.Hits
		}
		best, err = v.s.withPayloads(ctx, m, q.Payload, merged(hits, page.End()))
		return err
	})
	if err != nil {
		return nil, err
	}
	return page.Hits(best[0]), nil
}

// count sums up the statistics of the words of a query in the shards.
func (v *view) count(ctx context.Context, in *wordsAsk) (*keywords.Statistics, error) {
	_, counted, err := all[wordsFound](ctx, v.s, "words", every, in)
	for i := range in.Only {
		if err == nil {
			err = checkFound(ctx, v.s, in.Only[i].Where, counted)
		}
	}
	sum := &keywords.Statistics{}
	for _, shard := range sorted(counted) {
		if st := counted[shard].Statistics; st != nil && err == nil { // nil: it has no documents
			if err = sum.Add(st); err != nil {
				err = fmt.Errorf("shard %d: %w", shard, err)
			}
		}
	}
	return sum, err
}
