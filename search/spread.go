package search

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// multiDevice answers queries on devices, each shard on one, and merges their results.
type multiDevice struct {
	shards []*onDevice // by shard
}

// attachShards attaches each shard, the largest first, to the device that has the fewest tokens so
// far.
func attachShards(ctx context.Context, c *collection, host *processor, devices []kernels.Device) (_ stages, err error) {
	s := &multiDevice{shards: make([]*onDevice, len(c.shards))}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	order := make([]int, len(c.shards))
	for i := range order {
		order[i] = i
	}
	tokens := func(i int) uint64 { return c.shards[i].snap.State().LiveTokens }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tokens(b), tokens(a)) })
	load := make([]uint64, len(devices))
	for _, i := range order {
		lightest := slices.Index(load, slices.Min(load))
		load[lightest] += max(tokens(i), 1)
		s.shards[i], err = attachSnapshot(ctx, host, c.shards[i].snap, devices[lightest], kernels.AttachOptions{})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *multiDevice) close() (err error) {
	for _, d := range s.shards {
		if d != nil {
			err = errors.Join(err, d.close())
		}
	}
	return err
}

func (s *multiDevice) describe(description *Description) {
	var names []string
	for i, d := range s.shards {
		var shard Description
		d.describe(&shard)
		description.Shards[i].Device, description.Shards[i].Memory = shard.Device, shard.Memory
		if !slices.Contains(names, shard.Device) {
			names = append(names, shard.Device)
		}
	}
	description.Device = strings.Join(names, ", ")
}

// callForShard returns the call as the device of one shard answers it.
func (s *multiDevice) callForShard(c *call, shard int) *call {
	sub := *c
	sub.coll = newCollection(c.coll.shards[shard].snap)
	sub.slots = c.slots.newSlots()
	sub.request.payload, sub.filtered.payload = false, false // read for the merged hits only
	sub.allowed = func(i int) (*allowedDocs, error) {
		allowed, err := c.allowed(i)
		if err != nil {
			return nil, err
		}
		return (&allowedDocs{shards: allowed.shards[shard : shard+1]}).withCount(), nil
	}
	return &sub
}

// withCachedAllowed returns a call that computes the allowed documents of each query once.
func withCachedAllowed(c *call) *call {
	computeOnce := make([]func() (*allowedDocs, error), len(c.queries))
	for i := range computeOnce {
		computeOnce[i] = sync.OnceValues(func() (*allowedDocs, error) { return c.allowed(i) })
	}
	cached := *c
	cached.slots = c.slots.newSlots()
	cached.allowed = func(i int) (*allowedDocs, error) { return computeOnce[i]() }
	return &cached
}

func (s *multiDevice) answer(ctx context.Context, c *call) ([]Result, error) {
	start := time.Now()
	c = withCachedAllowed(c)
	byShard := make([][]Result, len(s.shards))
	err := parallel.Do(ctx, len(s.shards), len(s.shards), func(p int) (err error) {
		defer storage.Guard(c.coll.shards[p].snap.Path(), &err)()
		byShard[p], err = s.shards[p].answer(ctx, s.callForShard(c, p))
		return err
	})
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(c.queries))
	for i := range results {
		if err := mergeShardResults(&results[i], c, i, byShard); err != nil {
			return nil, &QueryError{Index: i, Err: err}
		}
		t := &results[i].Stats.Times
		t.Total = time.Since(start) - t.Wait
	}
	return results, nil
}

// mergeShardResults sets res to the result of query i, merged from the results of all shards.
// answers has results by shard and query.
func mergeShardResults(res *Result, c *call, i int, answers [][]Result) error {
	allowed, err := c.allowed(i)
	if err != nil {
		return err
	}
	q := c.requestFor(i)
	var top []located
	var times Times
	st := Stats{}
	shardStats := make([]ShardStats, len(answers))
	for p := range answers {
		a := &answers[p][i]
		sh := &c.coll.shards[p]
		for _, h := range a.Hits {
			top = append(top, located{sh, h.Ordinal, h.Score})
		}
		shardStats[p] = ShardStats{
			Shard:      p,
			Allowed:    a.Stats.Allowed,
			Candidates: a.Stats.Candidates,
			ExactDocs:  a.Stats.ExactDocs,
		}
		times = maxTimes(times, a.Stats.Times)
		st.Add(a.Stats)
	}
	slices.SortStableFunc(top, func(a, b located) int { return cmp.Compare(b.score, a.score) })
	top = top[:min(len(top), q.k)]
	*res = Result{K: q.k, Coverage: c.coll.coverage()}
	if res.Hits, err = newHits(len(top), func(i int) located { return top[i] }, q.payload); err != nil {
		return err
	}
	for i := range top {
		shardStats[top[i].shard.index].Hits++
	}
	st.Queries, st.QueryTokens = 1, answers[0][i].Stats.QueryTokens
	if len(st.Plans) > 0 { // a query counts once: with the first plan by name, if shards had several
		st.Plans = map[string]int{slices.Min(slices.Collect(maps.Keys(st.Plans))): 1}
	}
	st.FilterMissing, st.Times, st.Shards = int64(allowed.missingIDs), times, shardStats
	res.Stats = st
	return nil
}

// maxTimes returns the longer time of each stage: shards are searched at the same time.
func maxTimes(a, b Times) Times {
	return Times{
		Wait:      max(a.Wait, b.Wait),
		Centroids: max(a.Centroids, b.Centroids),
		Probe:     max(a.Probe, b.Probe),
		Approx:    max(a.Approx, b.Approx),
		Exact:     max(a.Exact, b.Exact),
		Refine:    max(a.Refine, b.Refine),
		Total:     max(a.Total, b.Total),
	}
}

// traceDocument traces the document in the search of its shard, and its rank among the hits of all
// shards.
func (s *multiDevice) traceDocument(ctx context.Context, c *call, t *trace) error {
	sub := s.callForShard(c, t.shard.index)
	shardTrace := *t
	shardTrace.shard = &sub.coll.shards[0] // the only one of the call for the shard
	if err := s.shards[t.shard.index].traceDocument(ctx, sub, &shardTrace); err != nil {
		return err
	}
	sh := t.shard
	*t = shardTrace
	t.shard = sh
	if t.stage != StageReturned {
		return nil
	}
	results, err := s.answer(ctx, c)
	if err != nil {
		return err
	}
	hits := results[0].Hits
	i := slices.IndexFunc(hits, func(h Hit) bool { return h.Shard == sh.index && h.Ordinal == t.ordinal })
	if t.rank = i + 1; i < 0 && len(hits) > 0 {
		limit := float64(hits[len(hits)-1].Score)
		t.leaveAt(StageOutranked, t.score, &limit)
	}
	return nil
}
