package cluster

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// keywordsRequest asks shards for documents by the words of their metadata. Without Query.Statistics it asks for the
// statistics of the query.
type keywordsRequest struct {
	Query collection.KeywordQuery `json:"query"` // without filters, which have no form in JSON
	Only  []collection.Selection  `json:"only"`  // only documents in all of these selections are found
}

type keywordsAnswer struct {
	answerHead
	Statistics *keywords.Statistics `json:"statistics,omitempty"`
	Hits       []wireHit            `json:"hits,omitzero"`
}

// doKeywords searches shards by words, or returns the statistics of the query.
func (c *Cluster) doKeywords(ctx context.Context, target *shardTarget,
	in *keywordsRequest) (*answers[keywordsAnswer], error) {
	var wheres []*condition.Condition
	for i := range in.Only {
		wheres = append(wheres, in.Only[i].Where)
	}
	return eachShard(ctx, c, target, func(h *openShard, out *keywordsAnswer) error {
		q := in.Query
		if q.Statistics == nil {
			st, err := h.snapshot.KeywordStatistics(ctx, keywords.Query{Text: q.Text, Mode: q.Mode})
			out.Statistics = &st
			return err
		}
		for i := range in.Only {
			filter, err := h.snapshot.Filter(ctx, newSplitSelection(&in.Only[i], target.ShardCount).forShards(h.Shard))
			if err != nil {
				return err
			}
			q.Filters = append(q.Filters, filter)
		}
		hits, err := h.snapshot.SearchKeywords(ctx, q)
		if err != nil {
			return err
		}
		remaining := maxReadBytes / len(target.Shards)
		for i := range hits {
			hit, err := h.toWireHit(&hits[i], q.Payload, &remaining)
			if err != nil {
				return err
			}
			out.Hits = append(out.Hits, hit)
		}
		return nil
	}, wheres...)
}

// SearchKeywords implements [collection.Keywords]. First the shards count the words of the query. Then they are
// searched with the sums, so that scores are those of one index, as long as nothing changes in between. All shards must
// answer, even if partial answers are allowed.
func (v *shardedSnapshot) SearchKeywords(ctx context.Context, q collection.KeywordQuery) ([]search.Hit, error) {
	page := q.Page()
	if err := page.Check(); err != nil {
		return nil, err
	}
	query := keywords.Query{Text: q.Text, Mode: q.Mode}
	cfg := v.coll.Config()
	if err := query.Check(*cfg.Keywords()); err != nil {
		return nil, err
	}
	in := keywordsRequest{Query: q}
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
	var rankings [][]search.Hit
	err := v.coll.withinOneGeneration(ctx, func() (err error) {
		withStatistics := in
		if withStatistics.Query.Statistics, err = v.sumStatistics(ctx, &in); err != nil {
			return err
		}
		m, answered, err := readAllShards[keywordsAnswer](ctx, v.coll, "words", allShards, &withStatistics)
		if err != nil {
			return err
		}
		hits := map[int][]wireHit{}
		for shard, f := range answered {
			hits[shard] = f.Hits
		}
		rankings, err = v.coll.hitsWithPayloads(ctx, m, q.Payload, mergeHits(hits, page.End()))
		return err
	})
	if err != nil {
		return nil, err
	}
	return page.Hits(rankings[0]), nil // of the one query
}

// sumStatistics adds up the statistics of the words of a query in the shards.
func (v *shardedSnapshot) sumStatistics(ctx context.Context, in *keywordsRequest) (*keywords.Statistics, error) {
	_, counted, err := readAllShards[keywordsAnswer](ctx, v.coll, "words", allShards, in)
	for i := range in.Only {
		if err == nil {
			err = checkAnsweredFields(ctx, v.coll, in.Only[i].Where, counted)
		}
	}
	sum := &keywords.Statistics{}
	for _, shard := range sortedKeys(counted) {
		if st := counted[shard].Statistics; st != nil && err == nil { // st is nil if the shard has no documents
			if err = sum.Add(st); err != nil {
				err = fmt.Errorf("shard %d: %w", shard, err)
			}
		}
	}
	return sum, err
}
