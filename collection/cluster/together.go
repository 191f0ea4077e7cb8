package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// together searches the shards of a generation that a node has as one: centroid scores are computed once, and
// budgets go where the best candidates are.
type together struct {
	generation uint64
	mu         sync.Mutex
	same       map[*kernels.Codec]int
	multi      *search.Multi
}

// at is the searcher of some shards.
func (t *together) at(ctx context.Context, c *Cluster, parts []*index.Snapshot) (*search.Multi, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	snap, err := index.Together(t.same, parts...)
	if err != nil {
		return nil, err
	}
	if t.multi == nil { // without shards, which would stay in memory as they are now
		none, err := index.Together(t.same)
		if err != nil {
			return nil, err
		}
		t.multi, err = search.NewMultiAt(ctx, none, &search.MultiOptions{Threads: c.c.Index.Threads, Logger: c.log})
		if err != nil {
			return nil, err
		}
	}
	return t.multi.At(snap), nil
}

// togetherOf is the searcher of the shards of a collection.
func (c *Cluster) togetherOf(a *asked) *together {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.front.together[a.ID]
	if t == nil || t.generation != a.Generation {
		if len(c.front.together) > 256 || c.front.together == nil {
			c.front.together = map[string]*together{}
		}
		t = &together{generation: a.Generation, same: map[*kernels.Codec]int{}}
		c.front.together[a.ID] = t
	}
	return t
}

// doSearch searches shards: as one, unless a device has them, or there are ordinals, which are of one shard.
func (c *Cluster) doSearch(ctx context.Context, a *asked, in *searchAsk) (*answers[searchFound], error) {
	byNumber := in.Only.Numbers != nil ||
		slices.ContainsFunc(in.Queries, func(q askedQuery) bool { return q.Only.Numbers != nil })
	if len(a.Shards) == 1 || c.c.Index.Device != nil || byNumber {
		return eachShard(ctx, c, a, func(h *held, out *searchFound) error {
			return c.searchShards(ctx, a, in, []*held{h}, []*searchFound{out})
		}, in.wheres()...)
	}
	out, all := openShards[searchFound](ctx, c, a, in.wheres())
	var ready []*held
	var found []*searchFound
	for i, h := range all {
		defer h.close()
		if h.ready() {
			ready, found = append(ready, h), append(found, &out.Shards[i])
		}
	}
	if len(ready) == 0 {
		return out, nil
	}
	err := c.guarded("a search", func() error { return c.searchShards(ctx, a, in, ready, found) })
	if err == nil {
		return out, nil
	}
	for i, h := range ready {
		found[i].Results = nil
		if h.answered.failed(err); errors.Is(err, storage.ErrCorrupt) { // one of them has damage
			c.aside(fmt.Sprint("verifying ", a.ID, h.Shard), func(ctx context.Context) { _ = h.replica.Verify(ctx) })
		}
	}
	return out, nil
}

// of makes the queries and options of a search of some shards.
func (in *searchAsk) of(ctx context.Context, a *asked, group ...*held) (qs []search.Query, o search.Options,
	err error) {
	var shards []int
	for _, h := range group {
		shards = append(shards, h.Shard)
	}
	filter := func(s *collection.Selection) (*search.Filter, error) {
		part := split(s, a.Of).in(shards...)
		switch {
		case part.All():
			return nil, nil
		case part.Numbers != nil:
			return group[0].view.Filter(ctx, part)
		}
		return (&search.Filter{IDs: part.IDs, Where: part.Where, AllowMissing: true}).Prepared(), nil
	}
	o = in.Options
	o.Effort, o.Share, o.AllowMissing, o.Payload = in.Effort, min(in.Share*float64(len(group)), 1), true, false
	if o.Mode == search.Candidates {
		some := candidates(&o)
		o.Candidates = split(&some, a.Of).in(shards...).IDs
	}
	if o.Filter, err = filter(&in.Only); err != nil {
		return nil, o, err
	}
	qs = make([]search.Query, len(in.Queries))
	for i := range qs {
		q := &in.Queries[i]
		qs[i] = search.Query(q.plainQuery)
		qs[i].Vectors, qs[i].Weights = q.Vectors, q.Weights
		if qs[i].Filter, err = filter(&q.Only); err != nil {
			return nil, o, err
		}
	}
	return qs, o, nil
}

// searchShards searches shards as one, and takes the results apart.
func (c *Cluster) searchShards(ctx context.Context, a *asked, in *searchAsk, group []*held,
	found []*searchFound) error {
	qs, o, err := in.of(ctx, a, group...)
	if err != nil {
		return err
	}
	var results []search.Result
	if len(group) == 1 {
		results, err = group[0].view.Search(ctx, qs, o)
	} else {
		results, err = c.searchTogether(ctx, a, group, qs, o)
	}
	if err != nil {
		return err
	}
	for _, f := range found {
		f.Results = make([]foundResult, len(results))
	}
	room := mostRead * len(group) / len(a.Shards)
	for i := range results {
		r := &results[i]
		floor, more := r.Floor()
		for j, f := range found {
			to := &f.Results[i]
			to.More, to.Floor = in.Share > 0 && more, floor
			if j == 0 { // the figures are of all of them
				to.Stats = r.Stats
			}
			to.Stats.Shards = nil
			if j < len(r.Stats.Shards) {
				to.Stats.Shards = r.Stats.Shards[j : j+1]
			}
		}
		for j := range r.Hits {
			part := r.Hits[j].Shard
			hit, err := group[part].found(&r.Hits[j], in.Options.Payload, &room)
			if err != nil {
				return err
			}
			to := &found[part].Results[i]
			to.Hits = append(to.Hits, hit)
		}
	}
	return nil
}

func (c *Cluster) searchTogether(ctx context.Context, a *asked, group []*held, qs []search.Query, o search.Options) (
	[]search.Result, error) {
	var parts []*index.Snapshot
	undecided := true
	for _, h := range group {
		parts = append(parts, h.view.Snapshot())
		undecided = undecided && collection.Undecided(h.view.Snapshot())
	}
	multi, err := c.togetherOf(a).at(ctx, c, parts)
	if err != nil {
		return nil, err
	}
	for i := range qs {
		if undecided { // no document has vectors
			qs[i].Vectors, qs[i].Weights, qs[i].Mask, qs[i].Dim = []float32{1}, nil, nil, 1
		}
	}
	return multi.SearchBatch(ctx, qs, o)
}
