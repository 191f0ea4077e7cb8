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

// jointSearcher searches the shards that a node has of one generation as if they were one index: centroid scores are
// computed once, and budgets go to the shards with the best candidates.
type jointSearcher struct {
	generation   uint64
	mu           sync.Mutex
	codecNumbers map[*kernels.Codec]int // of codecs that are known to be equal, see [index.JoinSnapshots]
	multi        *search.Multi          // nil before the first search
}

// searcherFor returns the searcher of some shards, given their snapshots.
func (t *jointSearcher) searcherFor(ctx context.Context, c *Cluster,
	snapshots []*index.Snapshot) (*search.Multi, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	snap, err := index.JoinSnapshots(t.codecNumbers, snapshots...)
	if err != nil {
		return nil, err
	}
	if t.multi == nil { // create it without shards: it would keep them in memory
		empty, err := index.JoinSnapshots(t.codecNumbers)
		if err != nil {
			return nil, err
		}
		t.multi, err = search.NewMultiAt(ctx, empty, &search.MultiOptions{Threads: c.cfg.Index.Threads, Logger: c.log})
		if err != nil {
			return nil, err
		}
	}
	return t.multi.At(snap), nil
}

// jointSearcherOf returns the joint searcher of a collection, for the present generation.
func (c *Cluster) jointSearcherOf(target *shardTarget) *jointSearcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.front.jointSearchers[target.ID]
	if t == nil || t.generation != target.Generation {
		if len(c.front.jointSearchers) > 256 || c.front.jointSearchers == nil {
			c.front.jointSearchers = map[string]*jointSearcher{}
		}
		t = &jointSearcher{generation: target.Generation, codecNumbers: map[*kernels.Codec]int{}}
		c.front.jointSearchers[target.ID] = t
	}
	return t
}

// doSearch searches shards: as one if possible. A device, and numbers, which mean one shard, require separate searches.
func (c *Cluster) doSearch(ctx context.Context, target *shardTarget,
	in *searchRequest) (*answers[searchAnswer], error) {
	byNumber := in.Only.Numbers != nil ||
		slices.ContainsFunc(in.Queries, func(q wireQuery) bool { return q.Only.Numbers != nil })
	if len(target.Shards) == 1 || c.cfg.Index.Device != nil || byNumber {
		return eachShard(ctx, c, target, func(h *openShard, out *searchAnswer) error {
			return c.searchShards(ctx, target, in, []*openShard{h}, []*searchAnswer{out})
		}, in.wheres()...)
	}
	out, shards := openShards[searchAnswer](ctx, c, target, in.wheres())
	var ready []*openShard
	var readyAnswers []*searchAnswer
	for i, h := range shards {
		defer h.close()
		if h.hasDocuments() {
			ready, readyAnswers = append(ready, h), append(readyAnswers, &out.Shards[i])
		}
	}
	// All shards succeed or fail together.
	if len(ready) == 0 {
		return out, nil
	}
	err := c.runGuarded("a search", func() error { return c.searchShards(ctx, target, in, ready, readyAnswers) })
	if err == nil {
		return out, nil
	}
	for i, h := range ready {
		readyAnswers[i].Results = nil
		h.answerHead.setError(err)
		if errors.Is(err, storage.ErrCorrupt) { // one of the shards is damaged: find out which
			verify := func(ctx context.Context) { _ = h.replica.Verify(ctx) }
			c.startTask(fmt.Sprint("verifying ", target.ID, h.Shard), verify)
		}
	}
	return out, nil
}

// toQueries returns the queries and options for a search of some shards.
func (in *searchRequest) toQueries(ctx context.Context, target *shardTarget,
	group ...*openShard) (qs []search.Query, o search.Options, err error) {
	var shards []int
	for _, h := range group {
		shards = append(shards, h.Shard)
	}
	filter := func(s *collection.Selection) (*search.Filter, error) {
		selection := newSplitSelection(s, target.ShardCount).forShards(shards...)
		switch {
		case selection.SelectsAll():
			return nil, nil
		case selection.Numbers != nil:
			return group[0].snapshot.Filter(ctx, selection) // numbers mean one shard: see doSearch
		}
		return (&search.Filter{IDs: selection.IDs, Where: selection.Where, AllowMissing: true}).Prepared(), nil
	}
	o = in.Options
	o.Effort, o.Share, o.AllowMissing, o.Payload = in.Effort, min(in.Share*float64(len(group)), 1), true, false
	if o.Mode == search.Candidates {
		candidates := candidateSelection(&o)
		o.Candidates = newSplitSelection(&candidates, target.ShardCount).forShards(shards...).IDs
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

// searchShards searches shards as one, and splits the results by shard. shardAnswers are parallel to group.
func (c *Cluster) searchShards(ctx context.Context, target *shardTarget, in *searchRequest, group []*openShard,
	shardAnswers []*searchAnswer) error {
	qs, o, err := in.toQueries(ctx, target, group...)
	if err != nil {
		return err
	}
	var results []search.Result
	if len(group) == 1 {
		results, err = group[0].snapshot.Search(ctx, qs, o)
	} else {
		results, err = c.searchJointly(ctx, target, group, qs, o)
	}
	if err != nil {
		return err
	}
	for _, f := range shardAnswers {
		f.Results = make([]wireResult, len(results))
	}
	remaining := maxReadBytes * len(group) / len(target.Shards)
	for i := range results {
		r := &results[i]
		floor, more := r.Floor()
		for j, f := range shardAnswers {
			result := &f.Results[i]
			result.More, result.Floor = in.Share > 0 && more, floor
			if j == 0 { // the statistics are those of all shards together
				result.Stats = r.Stats
			}
			result.Stats.Shards = nil
			if j < len(r.Stats.Shards) {
				result.Stats.Shards = r.Stats.Shards[j : j+1]
			}
		}
		for j := range r.Hits {
			groupIndex := r.Hits[j].Shard
			hit, err := group[groupIndex].toWireHit(&r.Hits[j], in.Options.Payload, &remaining)
			if err != nil {
				return err
			}
			result := &shardAnswers[groupIndex].Results[i]
			result.Hits = append(result.Hits, hit)
		}
	}
	return nil
}

// searchJointly searches the snapshots of several shards as one.
func (c *Cluster) searchJointly(ctx context.Context, target *shardTarget, group []*openShard, qs []search.Query,
	o search.Options) ([]search.Result, error) {
	var snapshots []*index.Snapshot
	undecided := true
	for _, h := range group {
		snapshots = append(snapshots, h.snapshot.Snapshot())
		undecided = undecided && collection.Undecided(h.snapshot.Snapshot())
	}
	multi, err := c.jointSearcherOf(target).searcherFor(ctx, c, snapshots)
	if err != nil {
		return nil, err
	}
	for i := range qs {
		if undecided { // a query with vectors of any dimension is valid then, and finds nothing
			qs[i].Vectors, qs[i].Weights, qs[i].Mask, qs[i].Dim = []float32{1}, nil, nil, 1
		}
	}
	return multi.SearchBatch(ctx, qs, o)
}
