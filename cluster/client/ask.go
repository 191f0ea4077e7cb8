package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// all asks all shards, and a second time the nodes that may hide more.
func (a *ask) all(ctx context.Context) []part {
	shards := make([]int, a.m.Shards())
	for s := range shards {
		shards[s] = s
	}
	if a.limit && a.where == nil && a.q.Mode != search.Candidates && len(a.ids) > 0 {
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
	if len(groups) == 1 { // as often
		for node, shards := range groups {
			return a.node(ctx, node, shards, tried, cut)
		}
	}
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
		for _, r := range a.f.watch.Replicas(a.m.ID(), a.m.Current.Number, s) {
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
				if first != nil {
					a.f.peers.fail(node) // the others had less time
				}
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
			if first != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				a.f.peers.fail(node)
			}
			return second
		}
	}
}

// elsewhere tells whether there are other replicas of all of some shards.
func (a *ask) elsewhere(shards []int, tried map[string]bool) bool {
	for _, s := range shards {
		if !slices.ContainsFunc(a.f.watch.Replicas(a.m.ID(), a.m.Current.Number, s), func(r topology.Replica) bool { return r.Ready && !tried[r.Node] }) {
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
		q.Keep = search.Keep(q.K, a.m.Share(shards))
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
	asking, span := bus.StartSpan(ctx, "ask", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("plaid.node", node), attribute.IntSlice("plaid.shards", shards)))
	answer, err := a.request(asking, node, q.ID, msg)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
	waiting := 0
	if answer != nil {
		waiting = answer.Waiting
	}
	a.f.peers.done(node, time.Since(began), waiting, err == nil && answer.Status == wire.OK)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		a.f.peers.fail(node)
		a.miss(shards, fmt.Sprintf("node %s is gone", node))
	case errors.Is(err, wire.ErrMessage) || errors.Is(err, wire.ErrVersion):
		a.f.peers.fail(node)
		a.miss(shards, fmt.Sprintf("node %s: %v", node, err))
	case err != nil:
		a.miss(shards, fmt.Sprintf("node %s: no answer in time", node))
	case answer.Status == wire.WrongGeneration || answer.Status == wire.Failed:
		a.f.peers.fail(node)
		a.mu.Lock()
		a.stale = a.stale || !a.over && answer.Status == wire.WrongGeneration
		a.mu.Unlock()
		a.miss(shards, said(node, answer))
	case answer.Status == wire.OK:
		return &part{node, shards, answer}
	case answer.Status == wire.Refused:
		a.refuse(answerError(answer))
	default:
		a.miss(shards, said(node, answer))
	}
	return nil
}

func said(node string, a *wire.Answer) string {
	return fmt.Sprintf("node %s: %v %s", node, a.Status, a.Text)
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
	reply, err := bus.Request(ctx, a.f.bus.Conn, bus.QuerySubject(node), msg)
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
		wire.CodeModel: storage.ErrModel, wire.CodeValues: index.ErrTooManyValues,
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
