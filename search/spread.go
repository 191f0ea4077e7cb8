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

// spread answers queries on devices, each part of a collection on one, and merges what
// they find.
type spread struct {
	parts []*onDevice // by part
}

// spreadOver puts each part on the device that has the fewest tokens yet, the largest
// part first.
func spreadOver(ctx context.Context, c *collection, host *processor, devices []kernels.Device) (_ stages, err error) {
	s := &spread{parts: make([]*onDevice, len(c.parts))}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	order := make([]int, len(c.parts))
	for i := range order {
		order[i] = i
	}
	tokens := func(i int) uint64 { return c.parts[i].snap.State().LiveTokens }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tokens(b), tokens(a)) })
	load := make([]uint64, len(devices))
	for _, i := range order {
		least := slices.Index(load, slices.Min(load))
		load[least] += max(tokens(i), 1)
		if s.parts[i], err = attach(ctx, host, c.parts[i].snap, devices[least], kernels.AttachOptions{}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *spread) close() (err error) {
	for _, d := range s.parts {
		if d != nil {
			err = errors.Join(err, d.close())
		}
	}
	return err
}

func (s *spread) describe(to *Description) {
	var names []string
	for i, d := range s.parts {
		var one Description
		d.describe(&one)
		to.Shards[i].Device, to.Shards[i].Memory = one.Device, one.Memory
		if !slices.Contains(names, one.Device) {
			names = append(names, one.Device)
		}
	}
	to.Device = strings.Join(names, ", ")
}

// callOf is a call as one part sees it.
func (s *spread) callOf(c *call, part int) *call {
	sub := *c
	sub.coll = collectionOf(c.coll.parts[part].snap)
	sub.turn = c.turn.fresh()
	sub.request.payload, sub.filtered.payload = false, false // of those that stay, later
	sub.allowed = func(i int) (*allowance, error) {
		all, err := c.allowed(i)
		if err != nil {
			return nil, err
		}
		return (&allowance{parts: all.parts[part : part+1]}).counted(), nil
	}
	return &sub
}

// remembering is a call that finds once what each query may return.
func remembering(c *call) *call {
	found := make([]func() (*allowance, error), len(c.queries))
	for i := range found {
		found[i] = sync.OnceValues(func() (*allowance, error) { return c.allowed(i) })
	}
	r := *c
	r.turn = c.turn.fresh()
	r.allowed = func(i int) (*allowance, error) { return found[i]() }
	return &r
}

func (s *spread) answer(ctx context.Context, c *call) ([]Result, error) {
	start := time.Now()
	c = remembering(c)
	answers := make([][]Result, len(s.parts))
	err := parallel.Do(ctx, len(s.parts), len(s.parts), func(p int) (err error) {
		defer storage.Guard(c.coll.parts[p].snap.Path(), &err)()
		answers[p], err = s.parts[p].answer(ctx, s.callOf(c, p))
		return err
	})
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(c.queries))
	for i := range results {
		if err := mergeParts(&results[i], c, i, answers); err != nil {
			return nil, &QueryError{Index: i, Err: err}
		}
		t := &results[i].Stats.Times
		t.Total = time.Since(start) - t.Wait
	}
	return results, nil
}

// mergeParts makes the result of query i from those of the parts.
func mergeParts(res *Result, c *call, i int, answers [][]Result) error {
	allowed, err := c.allowed(i)
	if err != nil {
		return err
	}
	q := c.requestOf(i)
	var top []located
	var times Times
	st := Stats{}
	parts := make([]ShardStats, len(answers))
	for p := range answers {
		a := &answers[p][i]
		of := &c.coll.parts[p]
		for _, h := range a.Hits {
			top = append(top, located{of, h.Ordinal, h.Score})
		}
		parts[p] = ShardStats{Shard: p, Allowed: a.Stats.Allowed, Candidates: a.Stats.Candidates, ExactDocs: a.Stats.ExactDocs}
		times = longest(times, a.Stats.Times)
		st.Add(a.Stats)
	}
	slices.SortStableFunc(top, func(a, b located) int { return cmp.Compare(b.score, a.score) })
	top = top[:min(len(top), q.k)]
	*res = Result{K: q.k, Coverage: c.coll.coverage()}
	if res.Hits, err = hitsOf(len(top), func(i int) located { return top[i] }, q.payload); err != nil {
		return err
	}
	for i := range top {
		parts[top[i].part.at].Hits++
	}
	st.Queries, st.QueryTokens = 1, answers[0][i].Stats.QueryTokens
	if len(st.Plans) > 0 { // a query counts once
		st.Plans = map[string]int{slices.Min(slices.Collect(maps.Keys(st.Plans))): 1}
	}
	st.FilterMissing, st.Times, st.Shards = int64(allowed.missing), times, parts
	res.Stats = st
	return nil
}

// longest is the time of each stage where it took longest: parts run side by side.
func longest(a, b Times) Times {
	return Times{
		Wait: max(a.Wait, b.Wait), Centroids: max(a.Centroids, b.Centroids), Probe: max(a.Probe, b.Probe), Approx: max(a.Approx, b.Approx),
		Exact: max(a.Exact, b.Exact), Refine: max(a.Refine, b.Refine), Total: max(a.Total, b.Total),
	}
}

// follow tells the search of the part that has the document, and the document's place
// among what all parts find.
func (s *spread) follow(ctx context.Context, c *call, t *trace) error {
	sub := s.callOf(c, t.part.at)
	inside := *t
	inside.part = &sub.coll.parts[0]
	if err := s.parts[t.part.at].follow(ctx, sub, &inside); err != nil {
		return err
	}
	of := t.part
	*t = inside
	t.part = of
	if t.stage != StageReturned {
		return nil
	}
	results, err := s.answer(ctx, c)
	if err != nil {
		return err
	}
	hits := results[0].Hits
	place := slices.IndexFunc(hits, func(h Hit) bool { return h.Shard == of.at && h.Ordinal == t.ordinal })
	if t.rank = place + 1; place < 0 && len(hits) > 0 {
		limit := float64(hits[len(hits)-1].Score)
		t.drop(StageOutranked, t.score, &limit)
	}
	return nil
}
