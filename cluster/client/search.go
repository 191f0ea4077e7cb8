package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
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
		return f.merge(a, parts, o)
	}
}

// newAsk checks a query as far as that can be done here, and takes the parts of it that
// are the same for all nodes.
func (f *Client) newAsk(ctx context.Context, m *topology.Map, q search.Query, o search.Options) (*ask, error) {
	if o.K < 0 || o.Mode < search.Pruned || o.Mode > search.Candidates {
		return nil, fmt.Errorf("%w: k %d, mode %d", search.ErrOption, o.K, o.Mode)
	}
	if q.Dim != 0 && q.Dim != m.Current.Dim {
		return nil, fmt.Errorf("%w: it has dimension %d, the collection %d", search.ErrQuery, q.Dim, m.Current.Dim)
	}
	a := &ask{f: f, m: m, missing: map[int]string{}}
	a.q = wire.Query{
		Collection: m.Collection, Generation: m.Current.Number, Dim: m.Current.Dim, Vectors: q.Vectors, Weights: q.Weights,
		K: o.K, Mode: o.Mode, Probes: o.Probes, Approx: o.Approx, Exact: o.Exact, Derive: o.Derive, Payload: o.Payload, AllowMissing: true,
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
	var rest *search.Filter
	for _, f := range filters {
		switch {
		case f == nil:
			continue
		case f.Docs != nil:
			return fmt.Errorf("%w: ordinals mean nothing in a cluster", search.ErrOption)
		case f.Where != nil && rest != nil:
			return fmt.Errorf("%w: two conditions in a query to a cluster", search.ErrOption)
		case f.Where != nil:
			rest = &search.Filter{Where: f.Where}
		}
		if f.Where != nil && f.IDs == nil {
			continue
		}
		ids := unique(f.IDs)
		if a.limit {
			ids = slices.DeleteFunc(ids, func(id string) bool { _, there := slices.BinarySearch(a.ids, id); return !there })
		}
		a.ids, a.limit = ids, true
	}
	if rest == nil {
		return nil
	}
	var err error
	a.q.Filter, err = json.Marshal(rest)
	return err
}

func unique(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// all asks all shards, and a second time the nodes that may hide more.
func (a *ask) all(ctx context.Context) []part {
	shards := make([]int, a.m.Shards())
	for s := range shards {
		shards[s] = s
	}
	if a.limit && a.q.Mode != search.Candidates && len(a.ids) > 0 {
		shards = a.shardsOf(a.ids)
	}
	parts := a.some(ctx, shards, nil, true)
	if a.refused() || len(parts) == 1 && !parts[0].a.More {
		return parts
	}
	floor, full := kth(parts, a.q.K)
	for i, p := range parts {
		hits := p.a.Hits
		if !p.a.More || full && len(hits) > 0 && hits[len(hits)-1].Score < floor {
			continue
		}
		// As the hits are in order, there may be better ones than the k-th behind the last.
		again := a.some(ctx, p.shards, nil, false)
		if len(again) == 1 {
			parts[i] = again[0]
			continue
		}
		parts[i].a = nil
		parts = append(parts, again...)
	}
	return slices.DeleteFunc(parts, func(p part) bool { return p.a == nil })
}

func (a *ask) shardsOf(ids []string) []int {
	in := map[int]bool{}
	for _, id := range ids {
		in[a.m.ShardOf(id)] = true
	}
	var shards []int
	for s := range a.m.Shards() {
		if in[s] {
			shards = append(shards, s)
		}
	}
	return shards
}

// kth is the score of the k-th hit; full is false where there are fewer.
func kth(parts []part, k int) (score float32, full bool) {
	var scores []float32
	for _, p := range parts {
		for _, h := range p.a.Hits {
			scores = append(scores, h.Score)
		}
	}
	if len(scores) < k {
		return 0, false
	}
	slices.SortFunc(scores, func(x, y float32) int { return cmp.Compare(y, x) })
	return scores[k-1], true
}

// some asks for shards on nodes that are not among tried. What stays without an answer
// is noted as missing.
func (a *ask) some(ctx context.Context, shards []int, tried map[string]bool, cut bool) []part {
	groups := a.choose(shards, tried)
	var mu sync.Mutex
	var parts []part
	var wg sync.WaitGroup
	for node, shards := range groups {
		wg.Go(func() {
			got := a.node(ctx, node, shards, tried, cut)
			mu.Lock()
			parts = append(parts, got...)
			mu.Unlock()
		})
	}
	wg.Wait()
	return parts
}

// choose finds a node for each shard.
func (a *ask) choose(shards []int, tried map[string]bool) map[string][]int {
	groups := map[string][]int{}
	for _, s := range shards {
		var ready []topology.Replica
		for _, r := range a.f.watch.Replicas(a.m.Collection, a.m.Current.Number, s) {
			if r.Ready && !tried[r.Node] && !r.Draining {
				ready = append(ready, r)
			}
		}
		if len(ready) == 0 {
			if len(tried) == 0 {
				a.miss([]int{s}, "no node serves it")
			}
			continue
		}
		node := a.f.peers.choose(ready, a.f.c.Zone, groups)
		groups[node] = append(groups[node], s)
	}
	return groups
}

func (a *ask) miss(shards []int, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range shards {
		if !a.over {
			a.missing[s] = reason
		}
	}
}

// node asks one node, and others in its place if it refuses, fails, or takes too long.
func (a *ask) node(ctx context.Context, node string, shards []int, tried map[string]bool, cut bool) []part {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	first := make(chan *part, 1)
	go func() { first <- a.send(ctx, node, shards, cut) }()
	tried = with(tried, node)
	var others chan []part
	elsewhere := func() {
		if others == nil {
			others = make(chan []part, 1)
			go func() { others <- a.some(ctx, shards, tried, cut) }()
		}
	}
	patience := time.NewTimer(a.f.peers.patience(node, a.f.c.HedgeFloor))
	defer patience.Stop()
	// What takes a third of all the time there is asked elsewhere whatever the budget.
	deadline, _ := ctx.Deadline()
	late := time.NewTimer(time.Until(deadline) / 3)
	defer late.Stop()
	var second []part
	for {
		select {
		case p := <-first:
			if p != nil {
				return []part{*p}
			}
			if first = nil; second != nil {
				return second
			}
			elsewhere()
		case got := <-others:
			if covers(got, shards) || first == nil {
				return got
			}
			if second = got; second == nil {
				second = []part{}
			}
			others = nil
		case <-patience.C:
			if others == nil && second == nil && first != nil && a.elsewhere(shards, tried) && a.f.peers.again() {
				elsewhere()
			}
		case <-late.C:
			if second == nil && first != nil && a.elsewhere(shards, tried) {
				elsewhere()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// elsewhere tells whether there are other replicas of all of some shards.
func (a *ask) elsewhere(shards []int, tried map[string]bool) bool {
	for _, s := range shards {
		if !slices.ContainsFunc(a.f.watch.Replicas(a.m.Collection, a.m.Current.Number, s), func(r topology.Replica) bool { return r.Ready && !tried[r.Node] }) {
			return false
		}
	}
	return true
}

func covers(parts []part, shards []int) bool {
	n := 0
	for _, p := range parts {
		n += len(p.shards)
	}
	return n == len(shards)
}

func with(tried map[string]bool, node string) map[string]bool {
	t := map[string]bool{node: true}
	for n := range tried {
		t[n] = true
	}
	return t
}

// send asks a node and waits; nil: there is no answer that counts, and why is noted.
func (a *ask) send(ctx context.Context, node string, shards []int, cut bool) *part {
	q := a.q
	q.ID = wire.NewID()
	deadline, _ := ctx.Deadline()
	q.Left = time.Until(deadline) * 9 / 10 // the rest is for the way back and for merging
	for _, s := range shards {
		a.f.mu.Lock()
		q.Shards = append(q.Shards, wire.ShardAt{Shard: s, Applied: a.f.seen[s]})
		a.f.mu.Unlock()
	}
	if cut {
		q.Keep = Keep(q.K, a.m.Share(shards))
	}
	if a.limit {
		a.restrict(&q, shards)
	}
	msg, err := q.Encode()
	if err != nil {
		a.refuse(err)
		return nil
	}
	a.f.peers.begin(node)
	began := time.Now()
	answer, err := a.request(ctx, node, q.ID, msg)
	waiting := 0
	if answer != nil {
		waiting = answer.Waiting
	}
	a.f.peers.done(node, time.Since(began), waiting, err == nil && answer.Status == wire.OK)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		a.miss(shards, fmt.Sprintf("node %s is gone", node))
	case err != nil:
		a.miss(shards, fmt.Sprintf("node %s: no answer in time", node))
	case answer.Status == wire.OK:
		return &part{node, shards, answer}
	case answer.Status == wire.Refused:
		a.refuse(answerError(answer))
	default:
		a.mu.Lock()
		a.stale = a.stale || !a.over && answer.Status == wire.WrongGeneration
		a.mu.Unlock()
		a.miss(shards, fmt.Sprintf("node %s: %v %s", node, answer.Status, answer.Text))
	}
	return nil
}

func (a *ask) refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.refusal = err
	}
}

func (a *ask) refused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refusal != nil
}

// request sends a message and waits for the answer to it. If the context ends before
// that, the node hears that nobody waits.
func (a *ask) request(ctx context.Context, node string, id wire.ID, msg []byte) (*wire.Answer, error) {
	reply, err := a.f.bus.Conn.RequestWithContext(ctx, bus.QuerySubject(node), msg)
	if err != nil {
		if ctx.Err() != nil {
			_ = a.f.bus.Conn.Publish(bus.CancelSubject(node), id[:]) // it ends by its deadline otherwise
		}
		return nil, err
	}
	answer, err := wire.DecodeAnswer(reply.Data)
	if err != nil {
		a.f.c.Logger.Warn("an answer cannot be read", "node", node, "error", err)
		return nil, err
	}
	if answer.Status == wire.OK && (answer.ID != id || answer.Generation != a.q.Generation) {
		return nil, fmt.Errorf("%w: an answer to another query", wire.ErrMessage)
	}
	return answer, nil
}

// restrict gives a query the ids of some shards.
func (a *ask) restrict(q *wire.Query, shards []int) {
	ids := []string{}
	for _, id := range a.ids {
		if slices.Contains(shards, a.m.ShardOf(id)) {
			ids = append(ids, id)
		}
	}
	if q.Mode == search.Candidates {
		q.Candidates, _ = json.Marshal(ids) // strings always have a form
		return
	}
	f := &search.Filter{}
	if q.Filter != nil {
		_ = json.Unmarshal(q.Filter, f) // was written here
	}
	f.IDs, f.AllowMissing = ids, true
	q.Filter, _ = json.Marshal(f)
}

func answerError(a *wire.Answer) error {
	sentinel := map[wire.Code]error{
		wire.CodeQuery: search.ErrQuery, wire.CodeOption: search.ErrOption, wire.CodeUnknownID: search.ErrUnknownID,
		wire.CodeModel: storage.ErrModel, wire.CodeUnknownField: condition.ErrUnknownField,
	}[a.Code]
	if sentinel == nil {
		return errors.New(a.Text)
	}
	return &nodeError{a.Text, sentinel}
}

// nodeError is an error of a node: its words, and what it is here.
type nodeError struct {
	text string
	is   error
}

func (e *nodeError) Error() string { return e.text }
func (e *nodeError) Unwrap() error { return e.is }

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

// Keep is how many of k hits to ask of shards that have some share of all documents:
// so many that they have more of the k best with a chance of 10⁻⁴ at most, documents
// being spread at random (the binomial distribution).
func Keep(k int, share float64) int {
	if share >= 1 || k <= 1 {
		return k
	}
	const chance = 1e-4
	logP, logQ := math.Log(share), math.Log1p(-share)
	sum := 0.0
	for n := 0; n < k; n++ {
		lk, _ := math.Lgamma(float64(k + 1))
		ln, _ := math.Lgamma(float64(n + 1))
		lr, _ := math.Lgamma(float64(k - n + 1))
		sum += math.Exp(lk - ln - lr + float64(n)*logP + float64(k-n)*logQ)
		if 1-sum <= chance {
			return max(n, 1)
		}
	}
	return k
}
