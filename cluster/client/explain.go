package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/search"
)

// Explain tells what becomes of a document in a search, as [search.Engine.Explain] does. What
// drops it, if anything does, is told of a search of its shard alone, where it competes with
// fewer documents for what a search may look at; whether it is returned, and its rank, of
// the search of all shards.
func (f *Client) Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error) {
	x, err := f.explain(ctx, q, id, o)
	if err != nil || x.Stage != search.StageReturned {
		return x, err
	}
	r, err := f.Search(ctx, q, o)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(r.Hits, func(h search.Hit) bool { return h.ID == x.ID }) // of a document of passages the one that is explained
	x.Rank = at + 1
	if n := len(r.Hits); n > 0 {
		limit := float64(r.Hits[n-1].Score)
		x.StageLimit = &limit
	}
	if at < 0 {
		x.Stage = search.StageOutranked
	}
	return x, nil
}

// Trace finds the stage that a document comes to in a search, as Explain does.
func (f *Client) Trace(ctx context.Context, q search.Query, id string, o search.Options) (search.Stage, error) {
	x, err := f.Explain(ctx, q, id, o)
	if err != nil {
		return search.StageReturned, err
	}
	return x.Stage, nil
}

func (f *Client) explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error) {
	if o.Group != "" || o.Feedback != nil || o.Offset != 0 || o.MinScore != nil {
		return nil, fmt.Errorf("%w: a search is explained without group, feedback, offset and least score", search.ErrOption)
	}
	if o.K == 0 {
		o.K = 10
	}
	o.Matches = false // which it says anyway
	m, err := f.collection()
	if err != nil {
		return nil, err
	}
	a, err := f.newAsk(ctx, m, q, o)
	if err != nil {
		return nil, err
	}
	if a.where != nil {
		if err := f.CheckFields(ctx, a.where); err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
	}
	s := m.ShardOf(id)
	query := a.q
	query.ID, query.Left = wire.NewID(), time.Hour // the time is that of the look
	f.mu.Lock()
	query.Shards = []wire.ShardAt{{Shard: s, Applied: f.seen[s]}}
	f.mu.Unlock()
	if a.limit {
		a.restrict(&query, []int{s})
	}
	msg, err := query.Encode()
	if err != nil {
		return nil, err
	}
	found, err := f.look(ctx, m, s, &wire.Look{Explain: msg, IDs: []string{id}})
	if err != nil {
		return nil, err
	}
	if found.Explanation == nil {
		return nil, fmt.Errorf("shard %d: %w: no explanation", s, wire.ErrMessage)
	}
	found.Explanation.Part = s
	return found.Explanation, nil
}
