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
	if t.multi == nil {
		t.multi, err = search.NewMultiAt(ctx, snap, &search.MultiOptions{Threads: c.c.Index.Threads, Logger: c.log})
		if err != nil {
			return nil, err
		}
	}
	return t.multi.At(snap), nil
}

// togetherOf is what searches the shards of a collection.
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

// byOrdinal reports whether a filter lets documents through by their ordinals, which are of one shard.
func (in *searchAsk) byOrdinal() bool {
	is := func(p *chosen) bool { return p != nil && p.Ordinals != nil }
	for i := range in.Shards {
		if is(in.Shards[i].Only) {
			return true
		}
		for j := range in.Queries {
			if is(in.Queries[j].Only[in.Shards[i].Shard]) {
				return true
			}
		}
	}
	return false
}

// idsOf are the ids that may answer in some shards; nil: all.
func idsOf(shards []*held, only func(h *held) *chosen) (ids []string) {
	for _, h := range shards {
		p := only(h)
		if p == nil || p.IDs == nil {
			return nil
		}
		ids = append(ids, p.IDs...)
	}
	return append([]string{}, ids...)
}

// searchTogether is doSearch of several shards at once.
func (c *Cluster) searchTogether(ctx context.Context, in *searchAsk) (*answers[searchFound], error) {
	out := &answers[searchFound]{make([]searchFound, len(in.Shards))}
	all := make([]*held, len(in.Shards))
	var wg sync.WaitGroup
	for i, s := range in.Shards {
		all[i] = &held{answered: &out.Shards[i].answered, shardAt: s}
		wg.Go(func() {
			err := c.guarded("a shard", func() error {
				err := all[i].open(ctx, c, &in.asked, in.Where)
				for j := 0; j < len(in.Queries) && err == nil && all[i].view != nil; j++ {
					err = all[i].lookFor(ctx, in.Queries[j].Where)
				}
				return err
			})
			if err != nil {
				all[i].failed(err)
			}
		})
	}
	wg.Wait()
	defer func() {
		for _, h := range all {
			_ = h.close()
		}
	}()
	var ready []*held
	var parts []*index.Snapshot
	for i, h := range all {
		if out.Shards[i].Results = make([]foundResult, len(in.Queries)); h.Error == nil && h.view != nil {
			ready, parts = append(ready, h), append(parts, h.view.Snapshot())
		}
	}
	if len(ready) == 0 {
		return out, nil
	}
	err := c.guarded("a search", func() error { return c.searchParts(ctx, in, ready, parts, out) })
	if err != nil {
		for _, h := range ready {
			if h.answered.failed(err); errors.Is(err, storage.ErrCorrupt) { // one of them has damage
				c.aside(fmt.Sprint("verifying ", in.ID, h.shardAt.Shard), func(ctx context.Context) { _ = h.replica.Verify(ctx) })
			}
		}
	}
	return out, nil
}

func (c *Cluster) searchParts(ctx context.Context, in *searchAsk, ready []*held, parts []*index.Snapshot,
	out *answers[searchFound]) error {
	multi, err := c.togetherOf(&in.asked).at(ctx, c, parts)
	if err != nil {
		return err
	}
	undecided := !slices.ContainsFunc(parts, func(s *index.Snapshot) bool { return !collection.Undecided(s) })
	filter := func(ids []string, where *search.Filter) *search.Filter {
		if ids == nil && where == nil {
			return nil
		}
		return (&search.Filter{IDs: ids, Where: lenient(where), AllowMissing: true}).Prepared()
	}
	o := in.Options
	o.Effort, o.Share, o.AllowMissing, o.Payload = in.Effort, min(in.Share*float64(len(ready)), 1), true, false
	if o.Mode == search.Candidates {
		o.Candidates = idsOf(ready, func(h *held) *chosen {
			return &chosen{IDs: slices.Concat([]string{},
				in.Candidates[h.shardAt.Shard])}
		})
	}
	o.Filter = filter(idsOf(ready, func(h *held) *chosen { return h.Only }), in.Where)
	qs := make([]search.Query, len(in.Queries))
	for i := range qs {
		q := &in.Queries[i]
		own := func(h *held) *chosen {
			if p := q.Only[h.shardAt.Shard]; p != nil || q.Only == nil {
				return p
			}
			return &chosen{IDs: []string{}}
		}
		qs[i] = search.Query{Dim: q.Dim, Mask: q.Mask, Model: q.Model, Filter: filter(idsOf(ready, own), q.Where)}
		weights, werr := floatsOf(q.Weights)
		vectors, verr := floatsOf(q.Vectors)
		if err := errors.Join(werr, verr); err != nil {
			return err
		}
		if qs[i].Vectors, qs[i].Weights = vectors, weights; undecided {
			qs[i].Vectors, qs[i].Weights, qs[i].Mask, qs[i].Dim = []float32{1}, nil, nil, 1
		}
	}
	results, err := multi.SearchBatch(ctx, qs, o)
	if err != nil {
		return err
	}
	at := map[int]*searchFound{}
	for i := range out.Shards {
		at[out.Shards[i].Shard] = &out.Shards[i]
	}
	room := mostRead
	for i := range results {
		r := &results[i]
		floor, more := r.Floor()
		for j, h := range ready {
			to := &at[h.shardAt.Shard].Results[i]
			to.More, to.Floor = in.Share > 0 && more, floor
			if j == 0 { // the figures are of all of them
				to.Stats = r.Stats
			}
			to.Stats.Parts = nil
			if j < len(r.Stats.Parts) {
				to.Stats.Parts = r.Stats.Parts[j : j+1]
			}
		}
		for j := range r.Hits {
			h := ready[r.Hits[j].Part]
			hit := foundHit{Hit: r.Hits[j]}
			if in.Options.Payload {
				if err := h.attach(&hit, &room); err != nil {
					return err
				}
			}
			to := at[h.shardAt.Shard]
			to.Results[i].Hits = append(to.Results[i].Hits, hit)
		}
	}
	return nil
}
