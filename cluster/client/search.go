package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// Search implements [search.Searcher]. Hits are numbered by shard and by ordinal in it.
//
// A search sees the changes that this client was told are made. Errors are those of
// [search.Engine.Search], [*PartialError], [ErrEmpty], [topology.ErrNoCollection] and
// [topology.ErrMap].
func (f *Client) Search(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	within, done, err := f.begin(ctx, f.c.Deadline)
	if err != nil {
		return nil, err
	}
	defer done()
	r, err := f.search(within, q, o)
	switch {
	case err == nil:
		return r, nil
	case f.end.Err() != nil:
		return nil, search.ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, err
}

// SearchBatch implements [search.Searcher]. Each query has a deadline of its own.
func (f *Client) SearchBatch(ctx context.Context, qs []search.Query, o search.Options) ([]search.Result, error) {
	const most = 8 // at a time: nodes refuse more than they can do
	results, errs := make([]search.Result, len(qs)), make([]error, len(qs))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	turns := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i := range qs {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			r, err := f.Search(ctx, qs[i], o)
			if err != nil {
				errs[i] = err
				stop()
				return
			}
			results[i] = *r
		})
	}
	wg.Wait()
	for _, other := range []bool{false, true} { // the others were ended by the first
		for i, err := range errs {
			if err == nil || !other && errors.Is(err, context.Canceled) {
				continue
			}
			if errors.Is(err, search.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
			return nil, &search.QueryError{Index: i, Err: err}
		}
	}
	return results, nil
}

// ask is a query on its way.
type ask struct {
	f     *Client
	m     *topology.Map
	q     wire.Query
	ids   []string // of the filter, without repetitions
	limit bool     // there is a list of ids
	where *condition.Condition

	mu      sync.Mutex
	over    bool           // what requests that were given up still say does not count
	missing map[int]string // why a shard was not searched
	refusal error          // the query itself is at fault
	stale   bool           // a node knows another generation
}

// end is when the parts are there. It tells whether shards are missing.
func (a *ask) end(parts []part) (missing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, p := range parts {
		for _, s := range p.shards {
			delete(a.missing, s)
		}
	}
	return len(a.missing) > 0
}

// part is the answer of a node for some shards.
type part struct {
	node   string
	shards []int
	a      *wire.Answer
}

func (f *Client) search(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	if o.K == 0 {
		o.K = 10
	}
	if o.Feedback != nil {
		return f.withFeedback(ctx, q, o)
	}
	if o.InBlocks() {
		results, err := search.Paged(o, func(o search.Options) ([]search.Result, error) {
			r, err := f.search(ctx, q, o)
			if err != nil {
				return nil, err
			}
			return []search.Result{*r}, nil
		})
		if err != nil {
			return nil, err
		}
		return &results[0], nil
	}
	for {
		changed := f.watch.Changed()
		m, err := f.collection()
		if err != nil {
			return nil, err
		}
		a, err := f.newAsk(ctx, m, q, o)
		if err != nil {
			return nil, err
		}
		parts := a.all(ctx)
		missing := a.end(parts)
		if a.refusal != nil {
			return nil, a.refusal
		}
		if gone := f.removed(); missing && gone != nil {
			return nil, gone
		}
		if missing && f.settles(ctx, changed) {
			continue
		}
		if now, err := f.collection(); a.stale && missing && (err != nil || now.Current.Number == m.Current.Number) {
			// The generation may be flipping: the map says so in a moment.
			select {
			case <-changed:
				continue
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		} else if err == nil && missing && now.Current.Number != m.Current.Number && ctx.Err() == nil {
			continue
		}
		if !missing { // a shard that is not there may have the field
			if err := a.checkFields(parts); err != nil {
				return nil, err
			}
		}
		r, err := f.merge(a, parts, o)
		if err == nil && slices.ContainsFunc(parts, func(p part) bool { return p.a.Bare }) {
			err = f.payloads(ctx, m, r, parts)
		}
		return r, err
	}
}

// payloads reads those of hits, of which some did not fit into an answer, from replicas
// that are not behind those which were searched. A document that is deleted meanwhile is
// left out of the result.
func (f *Client) payloads(ctx context.Context, m *topology.Map, r *search.Result, parts []part) error {
	w := &wanted{ReadOptions: collection.ReadOptions{Metadata: true}, applied: map[int]uint64{}}
	for _, p := range parts {
		for _, s := range p.a.Shards {
			w.applied[s.Shard] = max(w.applied[s.Shard], s.Applied)
		}
	}
	for i := range r.Hits {
		for h := range bare(&r.Hits[i]) {
			w.Numbers = append(w.Numbers, collection.NumberOf(h))
		}
	}
	found := map[Place][]byte{}
	if err := f.listed(ctx, m, w, func(d Document) bool { found[d.Place] = d.Payload; return true }); err != nil {
		return err
	}
	r.Hits = slices.DeleteFunc(r.Hits, func(h search.Hit) bool {
		for b := range bare(&h) {
			if _, there := found[Place{b.Part, b.Ordinal}]; !there {
				return true
			}
		}
		return false
	})
	for i := range r.Hits {
		h := &r.Hits[i]
		for b := range bare(h) {
			b.Payload = found[Place{b.Part, b.Ordinal}]
		}
		if len(h.Passages) > 0 && h.Payload == nil {
			if h.Payload = h.Passages[0].Payload; h.Passages[0].Passage != nil {
				h.Payload = vectors.WholePayload(h.Payload)
			}
		}
	}
	return nil
}

// bare are a hit, or its passages, that have no payload.
func bare(h *search.Hit) iter.Seq[*search.Hit] {
	return func(yield func(*search.Hit) bool) {
		if len(h.Passages) == 0 {
			if h.Payload == nil {
				yield(h)
			}
			return
		}
		for j := range h.Passages {
			if h.Passages[j].Payload == nil && !yield(&h.Passages[j]) {
				return
			}
		}
	}
}

// checkFields makes sure that some shard has each field of the condition.
func (a *ask) checkFields(parts []part) error {
	if a.where == nil || len(parts) == 0 {
		return nil
	}
	lists := make([][]string, len(parts))
	for i, p := range parts {
		lists[i] = p.a.Unknown
	}
	if err := known(a.where, lists); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	return nil
}

// known checks that each field of a condition is missing in one of the lists at least,
// which are of fields that parts of the collection do not have.
func known(where *condition.Condition, unknown [][]string) error {
	return where.Check(func(f condition.Field) bool {
		return slices.ContainsFunc(unknown, func(list []string) bool { return !slices.Contains(list, string(f)) })
	})
}

// newAsk checks a query as far as that can be done here, and takes the parts of it that
// are the same for all nodes.
func (f *Client) newAsk(ctx context.Context, m *topology.Map, q search.Query, o search.Options) (*ask, error) {
	if o.K < 0 || o.Mode < search.Pruned || o.Mode > search.Candidates {
		return nil, fmt.Errorf("%w: k %d, mode %d", search.ErrOption, o.K, o.Mode)
	}
	if o.Effort != 0 {
		return nil, fmt.Errorf("%w: an effort, which nodes are not told", search.ErrOption)
	}
	if q.Dim != 0 && q.Dim != m.Current.Dim {
		return nil, fmt.Errorf("%w: it has dimension %d, the collection %d", search.ErrQuery, q.Dim, m.Current.Dim)
	}
	a := &ask{f: f, m: m, missing: map[int]string{}}
	a.q = wire.Query{
		Collection: m.ID(), Generation: m.Current.Number, Dim: m.Current.Dim, Vectors: q.Vectors, Weights: q.Weights,
		K: o.K, Mode: o.Mode, Probes: o.Probes, Approx: o.Approx, Exact: o.Exact, Derive: o.Derive, Payload: o.Payload, AllowMissing: true,
	}
	if o.Group != "" || o.Passages != 0 || o.Matches {
		a.q.Wants = &wire.Wants{Group: o.Group, Passages: o.Passages, Matches: o.Matches}
	}
	if q.Mask != nil {
		if err := a.masked(&q); err != nil {
			return nil, err
		}
	}
	var err error
	if q.Model != nil {
		if a.q.Model, err = json.Marshal(q.Model); err != nil {
			return nil, err
		}
	}
	if err := a.filter(q.Filter, o.Filter); err != nil {
		return nil, err
	}
	if o.Mode == search.Candidates {
		if a.limit {
			return nil, fmt.Errorf("%w: mode candidates beside a filter by ids", search.ErrOption)
		}
		a.ids, a.limit = unique(o.Candidates), true
	}
	return a, ctx.Err()
}

// masked leaves out the tokens that take no part.
func (a *ask) masked(q *search.Query) error {
	dim := a.q.Dim
	if len(q.Mask)*dim != len(q.Vectors) || q.Weights != nil && len(q.Weights) != len(q.Mask) {
		return fmt.Errorf("%w: a mask of %d entries for %d values", search.ErrQuery, len(q.Mask), len(q.Vectors))
	}
	a.q.Vectors, a.q.Weights = nil, nil
	for t, in := range q.Mask {
		if !in {
			continue
		}
		a.q.Vectors = append(a.q.Vectors, q.Vectors[t*dim:(t+1)*dim]...)
		if q.Weights != nil {
			a.q.Weights = append(a.q.Weights, q.Weights[t])
		}
	}
	return nil
}

// filter takes filters apart: a shard gets the ids that belong to it.
func (a *ask) filter(filters ...*search.Filter) error {
	for _, f := range filters {
		switch {
		case f == nil:
			continue
		case f.Docs != nil:
			return fmt.Errorf("%w: ordinals mean nothing in a cluster", search.ErrOption)
		case f.Where != nil:
			if err := a.and(f.Where); err != nil {
				return err
			}
		}
		if f.Where != nil && f.IDs == nil {
			continue
		}
		ids := unique(f.IDs)
		if a.limit {
			ids = both(a.ids, ids)
		}
		a.ids, a.limit = ids, true
	}
	if a.where == nil {
		return nil
	}
	var err error
	a.q.Filter, err = whereJSON(a.where)
	return err
}

// and adds a condition.
func (a *ask) and(where *condition.Condition) error {
	if a.where == nil {
		a.where = where
		return nil
	}
	e, err := condition.Parse("(" + a.where.String() + ") AND (" + where.String() + ")")
	if err != nil {
		return err
	}
	var params []any
	for _, v := range slices.Concat(a.where.Params(), where.Params()) {
		params = append(params, v)
	}
	lenient := a.where.IsLenient() && where.IsLenient()
	if a.where, err = e.Bind(params...); err == nil && lenient {
		a.where = a.where.Lenient()
	}
	return err
}

// whereJSON is a condition in the form of a filter.
func whereJSON(where *condition.Condition) ([]byte, error) {
	if slices.Contains(where.Fields(), condition.FieldOrdinal) {
		return nil, fmt.Errorf("%w: a condition over %s, which means nothing in a cluster", search.ErrOption, condition.FieldOrdinal)
	}
	return json.Marshal(&search.Filter{Where: where})
}

func unique(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// merge makes the result of the parts.
func (f *Client) merge(a *ask, parts []part, o search.Options) (*search.Result, error) {
	r := &search.Result{K: o.K}
	c := &r.Coverage
	c.Parts = a.m.Shards()
	searched := map[int]bool{}
	for _, p := range parts {
		for _, s := range p.a.Shards {
			c.Docs += int64(s.Documents)
			searched[s.Shard] = true
		}
		for _, h := range p.a.Hits {
			h.Hit.Part = h.Shard
			for j := range h.Passages {
				h.Passages[j].Part = h.Shard
			}
			r.Hits = append(r.Hits, h.Hit)
		}
		r.Stats.Add(p.a.Stats)
	}
	r.Stats.Queries = 1
	r.Stats.QueryTokens = len(a.q.Vectors) / a.q.Dim
	c.Of = c.Docs
	for s := range a.m.Shards() {
		if searched[s] {
			continue
		}
		docs := f.documents(a.m, s)
		c.Of += docs
		reason, missing := a.missing[s]
		if !missing && a.limit { // none of its documents may be returned
			c.Docs += docs
			continue
		}
		if reason == "" {
			reason = "no answer in time"
		}
		c.Missing = append(c.Missing, search.MissingPart{Part: s, Name: fmt.Sprintf("shard %d", s), Docs: docs, Reason: reason})
	}
	if len(c.Missing) > 0 && (!f.c.AllowPartial || len(parts) == 0) {
		return nil, &PartialError{*c}
	}
	if n := int(r.Stats.FilterMissing); n > 0 && a.limit && !allowsMissing(o) {
		return nil, fmt.Errorf("%w: %d of the ids that were given", search.ErrUnknownID, n)
	}
	slices.SortFunc(r.Hits, func(x, y search.Hit) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.Part, y.Part), cmp.Compare(x.Ordinal, y.Ordinal))
	})
	if len(r.Hits) > o.K {
		r.Hits = slices.Clip(r.Hits[:o.K])
	}
	return r, nil
}

func allowsMissing(o search.Options) bool {
	if o.Mode == search.Candidates {
		return o.AllowMissing
	}
	return o.Filter == nil || o.Filter.AllowMissing || o.Filter.IDs == nil
}
