package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// wordsAsk asks shards for documents by the words of their metadata; without statistics, for those of the
// query. Only of the shards is what all filters let through.
type wordsAsk struct {
	asked
	Text       string               `json:"text"`
	Mode       keywords.Mode        `json:"mode,omitempty"`
	K          int                  `json:"k,omitempty"`
	Passages   int                  `json:"passages,omitempty"`
	Payload    bool                 `json:"payload,omitempty"`
	Filters    []wordsFilter        `json:"filters,omitzero"`
	Statistics *keywords.Statistics `json:"statistics,omitempty"`
}

// wordsFilter is one of several filters, all of which let a document through.
type wordsFilter struct {
	Where *search.Filter  `json:"where,omitempty"`
	Only  map[int]*chosen `json:"only,omitzero"` // in shards
}

type wordsFound struct {
	answered
	Statistics *keywords.Statistics `json:"statistics,omitempty"`
	Hits       []foundHit           `json:"hits,omitzero"`
}

func (f *wordsFound) common() *answered { return &f.answered }

// doWords searches shards by words.
func (c *Cluster) doWords(ctx context.Context, in *wordsAsk) (*answers[wordsFound], error) {
	return eachShard(ctx, c, &in.asked, (*wordsFound).common, nil, func(_ int, h *held, out *wordsFound) error {
		q := collection.KeywordQuery{Text: in.Text, Mode: in.Mode, K: in.K, Passages: in.Passages, Statistics: in.Statistics}
		if in.Statistics == nil {
			st, err := h.view.KeywordStatistics(ctx, keywords.Query{Text: in.Text, Mode: in.Mode})
			out.Statistics = &st
			return err
		}
		for _, f := range in.Filters {
			s := shardAt{Only: f.Only[h.shardAt.Shard]}
			if f.Only != nil && s.Only == nil {
				s.Only = &chosen{IDs: []string{}}
			}
			filter, err := h.view.Filter(ctx, s.selection(lenient(f.Where)))
			if err != nil {
				return err
			}
			q.Filters = append(q.Filters, filter)
		}
		hits, err := h.view.SearchKeywords(ctx, q)
		if err != nil {
			return err
		}
		room := mostRead / len(in.Shards)
		out.Hits = make([]foundHit, len(hits))
		for i := range hits {
			if out.Hits[i].Hit = hits[i]; in.Payload {
				if err := h.attach(&out.Hits[i], &room); err != nil {
					return err
				}
			}
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
	in := wordsAsk{Text: q.Text, Mode: q.Mode}
	var selections []collection.Selection
	var filters []wordsFilter
	for _, f := range q.Filters {
		if f == nil {
			continue
		}
		s, err := v.selectionOf(f)
		if err == nil {
			err = v.s.checkFields(ctx, s.Where)
		}
		where, werr := whereOf(s.Where)
		if err = cmp.Or(err, werr); err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
		selections, filters = append(selections, s), append(filters, wordsFilter{Where: where})
	}
	request := func(m *Map, a *asked) any {
		in := in
		in.asked, in.Filters = *a, slices.Clone(filters)
		for i := range selections {
			if s := &selections[i]; s.IDs != nil || s.Numbers != nil {
				in.Filters[i].Only = m.split(s)
			}
		}
		return &in
	}
	_, counted, err := all(ctx, v.s, "words", every, request, (*wordsFound).common)
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
	in.Statistics, in.K, in.Passages, in.Payload = sum, page.End(), q.Passages, q.Payload
	_, found, err := all(ctx, v.s, "words", every, request, (*wordsFound).common)
	if err != nil {
		return nil, err
	}
	hits := map[int][]foundHit{}
	for shard, f := range found {
		hits[shard] = f.Hits
	}
	best, bare := merged(hits, page.End(), q.Payload)
	if err := v.s.payloads(ctx, bare); err != nil {
		return nil, err
	}
	best = slices.DeleteFunc(best, func(h search.Hit) bool { return h.Part < 0 })
	return page.Hits(best), nil
}
