package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// job is a query that waits or runs.
type job struct {
	q    *wire.Query
	msg  *nats.Msg
	came time.Time
	ctx  context.Context
	end  context.CancelFunc
	span trace.Span
}

// queries are those of a node: a bounded queue, and the way to cancel one.
type queries struct {
	queue chan *job
	mu    sync.Mutex
	jobs  map[wire.ID]*job
	ended bool
	none  chan struct{} // closed while there is none
}

func (s *queries) init(queue int) {
	s.queue = make(chan *job, queue)
	s.jobs = map[wire.ID]*job{}
	s.none = make(chan struct{})
	close(s.none)
}

// add takes a query in, or tells that there is no room.
func (s *queries) add(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.jobs[j.q.ID] != nil {
		return false
	}
	select {
	case s.queue <- j:
	default:
		return false
	}
	if len(s.jobs) == 0 {
		s.none = make(chan struct{})
	}
	s.jobs[j.q.ID] = j
	return true
}

func (s *queries) remove(j *job) {
	j.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, j.q.ID)
	if len(s.jobs) == 0 {
		close(s.none)
	}
}

func (s *queries) cancel(id wire.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[id]; j != nil {
		j.end()
	}
}

func (s *queries) waiting() int { return len(s.queue) }

// idle waits until there is no query.
func (s *queries) idle(ctx context.Context) error {
	s.mu.Lock()
	none := s.none
	s.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *queries) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	close(s.queue)
}

// hear takes a query in. It runs on the connection's goroutine, so it does little.
func (n *Node) hear(msg *nats.Msg) {
	q, err := wire.DecodeQuery(msg.Data)
	if err != nil {
		n.log.Warn("a message is no query", "error", err)
		n.reply(msg, &wire.Answer{Status: wire.Refused, Code: wire.CodeQuery, Text: err.Error()})
		return
	}
	j := &job{q: q, msg: msg, came: time.Now()}
	shards := make([]int, len(q.Shards))
	for i, s := range q.Shards {
		shards[i] = s.Shard
	}
	j.ctx, j.end = context.WithTimeout(n.ctx, q.Left)
	j.ctx, j.span = n.heard(j.ctx, msg, "query", n.attributes(q.Collection, q.Generation, shards...))
	if !n.queries.add(j) {
		a := &wire.Answer{ID: q.ID, Status: wire.Busy, Waiting: n.queries.waiting()}
		n.answered(j, a)
		j.end()
		n.reply(msg, a)
	}
}

// hearCancel ends queries that nobody waits for: a list of ids.
func (n *Node) hearCancel(msg *nats.Msg) {
	for b := msg.Data; len(b) >= len(wire.ID{}); b = b[len(wire.ID{}):] {
		n.queries.cancel(wire.ID(b[:len(wire.ID{})]))
	}
}

func (n *Node) reply(msg *nats.Msg, a *wire.Answer) {
	defer n.metrics.answered(a) // as it is sent
	text, err := a.Encode()
	if err == nil && int64(len(text)) > n.bus.Conn.MaxPayload() {
		// Whoever asks reads the payloads of the hits that stay, a message at a time.
		for i := range a.Hits {
			a.Hits[i].Payload = nil
			for j := range a.Hits[i].Passages {
				a.Hits[i].Passages[j].Payload = nil
			}
		}
		a.Bare = len(a.Hits) > 0
		text, err = a.Encode()
	}
	if err == nil && int64(len(text)) > n.bus.Conn.MaxPayload() {
		if a.Status == wire.OK && slices.ContainsFunc(a.Hits, func(h wire.Hit) bool { return h.Passages != nil || h.Matches != nil }) {
			a.Code = wire.CodeOption // other nodes have no more room
		}
		a.Hits, a.Bare, a.Unknown, a.Status, a.Text = nil, false, nil, wire.Failed, fmt.Sprintf("the answer has %d bytes, %d are the most of a message", len(text), n.bus.Conn.MaxPayload())
		if a.Code != wire.CodeNone {
			a.Status = wire.Refused
		}
		text, err = a.Encode()
	}
	if err == nil {
		err = msg.Respond(text)
	}
	if err != nil {
		n.log.Warn("a query is not answered", "error", err)
	}
}

// work answers queries until the queue is closed.
func (n *Node) work() {
	for j := range n.queries.queue {
		began := time.Now()
		var a *wire.Answer
		if err := n.guard("a query", func() error { a = n.answer(j); return nil }); err != nil {
			a = &wire.Answer{Status: wire.Failed, Text: err.Error()}
		}
		a.ID, a.Generation = j.q.ID, j.q.Generation
		a.Queued, a.Worked, a.Waiting = began.Sub(j.came), time.Since(began), n.queries.waiting()
		n.metrics.worked(a)
		n.answered(j, a)
		if a.Status != wire.Late || n.ctx.Err() == nil {
			n.reply(j.msg, a)
		}
		n.queries.remove(j)
	}
}

// answer searches the shards of a query, each in one state, and merges what it finds.
func (n *Node) answer(j *job) *wire.Answer {
	q := j.q
	if j.ctx.Err() != nil {
		return &wire.Answer{Status: wire.Late}
	}
	query, o, err := request(q)
	if err != nil {
		return refused(err)
	}
	p, no := n.pick(q)
	if no != nil {
		return no
	}
	defer p.close()
	var unknown []string
	if o.Filter != nil && o.Filter.Where != nil {
		// Whether a field that is nowhere here is one at all, other nodes know.
		if unknown, err = unknownFields(j.ctx, p.snap.Parts(), o.Filter.Where); err != nil {
			return n.failed(j.ctx, err)
		}
		o.Filter.Where = o.Filter.Where.Lenient()
	}
	o.Payload = o.Payload && o.Group != "" // else of as many hits as an answer has room for, below
	o.Share = n.share(q)
	searching, span := n.tracer.Start(j.ctx, "search")
	result, err := p.searcher.Search(searching, query, o)
	ended(span, err)
	if err != nil {
		return n.failed(j.ctx, err)
	}
	a := &wire.Answer{Stats: result.Stats, Hits: make([]wire.Hit, len(result.Hits)), Unknown: unknown}
	for i, snap := range p.snap.Parts() {
		a.Shards = append(a.Shards, wire.ShardState{Shard: q.Shards[i].Shard, Applied: p.applied[i], Documents: uint64(snap.Len())})
	}
	for i, h := range result.Hits {
		a.Hits[i] = wire.Hit{Shard: q.Shards[h.Part].Shard, Hit: h}
		a.Hits[i].Part = 0
		for j := range h.Passages {
			h.Passages[j].Part = 0
		}
	}
	if q.Keep > 0 && q.Keep < q.K {
		_, a.More = result.Floor() // there may be others, of which none is better than the last
		if len(a.Hits) > q.Keep {
			a.Hits, a.More = a.Hits[:q.Keep], true
		}
	}
	if q.Payload && o.Group == "" {
		if err := attach(a, p.snap.Parts(), result.Hits, n.bus.Conn.MaxPayload()); err != nil {
			return n.failed(j.ctx, err)
		}
	}
	return a
}

// share is that of the shards of a query in the collection, where whoever asks is content with
// as many hits as they have of the best of all, and asks again if they may have more; else 0,
// which is all.
func (n *Node) share(q *wire.Query) float64 {
	if q.Keep == 0 || q.Keep >= q.K {
		return 0
	}
	m, err := n.watch.MapOf(q.Collection)
	if err != nil {
		return 0
	}
	shards := make([]int, len(q.Shards))
	for i, s := range q.Shards {
		if shards[i] = s.Shard; s.Shard >= m.Shards() {
			return 0
		}
	}
	return m.Share(shards)
}

// attach puts payloads into an answer, as long as there is room: whoever asks reads the
// others of the hits that stay, a message at a time.
func attach(a *wire.Answer, parts []*index.Snapshot, hits []search.Hit, room int64) error {
	room -= 4096 // its head
	for _, h := range a.Hits {
		room -= int64(22 + len(h.ID))
	}
	for i := range a.Hits {
		h := &hits[i]
		if !parts[h.Part].HasPayload(h.Ordinal) {
			continue
		}
		payload, err := parts[h.Part].Payload(h.Ordinal)
		if err != nil {
			return err
		}
		if room -= int64(len(payload)); room < 0 {
			a.Bare = true
			return nil
		}
		a.Hits[i].Payload = payload
	}
	return nil
}

// request is the query as an engine takes it. Ids that are in other shards are no
// fault here; whoever asks counts them.
func request(q *wire.Query) (search.Query, search.Options, error) {
	query := search.Query{Vectors: q.Vectors, Dim: q.Dim, Weights: q.Weights}
	o := search.Options{K: q.K, Mode: q.Mode, Probes: q.Probes, Approx: q.Approx, Exact: q.Exact, Derive: q.Derive, Payload: q.Payload, AllowMissing: true}
	if w := q.Wants; w != nil {
		o.Group, o.Passages, o.Matches = w.Group, w.Passages, w.Matches
	}
	for _, f := range []struct {
		from []byte
		to   any
	}{{q.Model, &query.Model}, {q.Filter, &o.Filter}, {q.Candidates, &o.Candidates}} {
		if f.from == nil {
			continue
		}
		if err := json.Unmarshal(f.from, f.to); err != nil {
			return query, o, fmt.Errorf("%w: %w", search.ErrOption, err)
		}
	}
	if o.Filter != nil {
		o.Filter.AllowMissing = true
	}
	return query, o, nil
}

func unknownFields(ctx context.Context, snaps []*index.Snapshot, where *condition.Condition) ([]string, error) {
	const most = 8 << 10 // bytes, so that an answer has room for them
	fields, err := index.UnknownFields(ctx, snaps, where)
	var names []string
	size := 0
	for _, f := range fields {
		names = append(names, string(f))
		size += len(f)
	}
	if size > most {
		return nil, fmt.Errorf("%w: %d fields that no document has", search.ErrOption, len(fields))
	}
	return names, err
}

// failed is the answer to a query that has an error.
func (n *Node) failed(ctx context.Context, err error) *wire.Answer {
	switch err = n.inside("a query", err); {
	case ctx.Err() != nil:
		return &wire.Answer{Status: wire.Late}
	case codeOf(err) != wire.CodeNone:
		return refused(err)
	}
	return &wire.Answer{Status: wire.Failed, Text: err.Error()}
}

// conditionOf reads a filter that is a condition and nothing else.
func conditionOf(filter []byte) (*condition.Condition, error) {
	var f search.Filter
	if err := wire.ReadJSON(filter, &f); err != nil {
		return nil, err
	}
	if f.Where == nil || f.IDs != nil {
		return nil, fmt.Errorf("%w: a filter without a condition", wire.ErrMessage)
	}
	return f.Where, nil
}

func refused(err error) *wire.Answer {
	return &wire.Answer{Status: wire.Refused, Code: codeOf(err), Text: err.Error()}
}

func codeOf(err error) wire.Code {
	switch {
	case errors.Is(err, search.ErrQuery):
		return wire.CodeQuery
	case errors.Is(err, search.ErrOption):
		return wire.CodeOption
	case errors.Is(err, search.ErrUnknownID):
		return wire.CodeUnknownID
	case errors.Is(err, storage.ErrModel):
		return wire.CodeModel
	case errors.Is(err, index.ErrTooManyValues):
		return wire.CodeValues
	}
	return wire.CodeNone
}
