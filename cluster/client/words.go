package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/vectors"
)

// SearchWords finds documents by the words of their payloads, among those that all filters
// let through, as [keywords.Index.Search] does: each shard tells first what the query finds
// in it, and is then searched with the sums of that. So scores are those of one index, as
// long as nothing changes between. Hits have payloads if those are wanted. Each shard has to
// answer, whatever the configuration says.
//
// Errors: those of Documents, and of the query: [keywords.ErrOption], [keywords.ErrSyntax] and
// [keywords.ErrTooLong].
func (f *Client) SearchWords(ctx context.Context, q collection.KeywordQuery, settings keywords.Settings) ([]search.Hit, error) {
	query := keywords.Query{Text: q.Text, Mode: q.Mode}
	if q.K < 1 {
		return nil, fmt.Errorf("%w: %d documents", keywords.ErrOption, q.K)
	}
	if err := query.Check(settings); err != nil {
		return nil, err
	}
	m, err := f.collection()
	if err != nil {
		return nil, err
	}
	ask := wire.WordsLook{Text: q.Text, Mode: q.Mode, K: q.K, Statistics: &keywords.Statistics{}}
	among := collection.Selection{}
	for _, filter := range q.Filters {
		if filter == nil {
			continue
		}
		if filter.IDs != nil {
			among.IDs = both(among.IDs, filter.IDs)
		}
		if filter.Where == nil {
			continue
		}
		text, err := whereJSON(filter.Where)
		if err == nil {
			err = f.CheckFields(ctx, filter.Where)
		}
		if err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
		ask.Filters = append(ask.Filters, json.RawMessage(text))
	}
	looks, err := f.looksOf(m, among)
	if err != nil {
		return nil, err
	}
	counted, err := f.lookAll(ctx, m, func(int) *wire.Look {
		return &wire.Look{Words: &wire.WordsLook{Text: q.Text, Mode: q.Mode}}
	})
	if err != nil {
		return nil, err
	}
	for s, found := range counted {
		if found.Words == nil || found.Words.Statistics == nil {
			return nil, fmt.Errorf("shard %d: %w: no statistics of words", s, wire.ErrMessage)
		}
		if err := ask.Statistics.Add(found.Words.Statistics); err != nil {
			return nil, fmt.Errorf("shard %d: %w", s, err)
		}
	}
	hits := map[Place]search.Hit{}
	var mu sync.Mutex
	err = f.each(m, func(s int) error {
		for _, l := range looks[s] {
			for l.Words = &ask; ; {
				found, err := f.look(ctx, m, s, l)
				if err != nil {
					return err
				}
				if found.Words == nil {
					return fmt.Errorf("shard %d: %w: no documents", s, wire.ErrMessage)
				}
				mu.Lock()
				for _, h := range found.Words.Hits {
					hits[Place{s, h.Ordinal}] = search.Hit{ID: h.ID, Ordinal: h.Ordinal, Part: s, Score: h.Score}
				}
				mu.Unlock()
				if !found.Words.More || found.Next <= l.From {
					break
				}
				l.From = found.Next
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	best := make([]search.Hit, 0, len(hits))
	for _, h := range hits {
		best = append(best, h)
	}
	slices.SortFunc(best, func(a, b search.Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(collection.NumberOf(&a), collection.NumberOf(&b)))
	})
	r := &search.Result{Hits: best[:min(q.K, len(best))]}
	if q.Payload {
		err = f.payloads(ctx, m, r, nil)
	}
	return r.Hits, err
}

// both are the ids that two lists mean, of which one may name a document and the other one
// passages of it; nil: all.
func both(a, b []string) []string {
	if a == nil {
		return b
	}
	within := func(ids, of []string) (in []string) {
		named := map[string]bool{}
		for _, id := range of {
			named[id] = true
		}
		for _, id := range ids {
			if whole, _ := vectors.SplitPassageID(id); named[id] || named[whole] {
				in = append(in, id)
			}
		}
		return in
	}
	return append([]string{}, unique(append(within(a, b), within(b, a)...))...) // not nil
}
