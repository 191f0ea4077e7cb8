package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/vectors"
)

// queues are the batches that wait to be written to logs, by shard: what waits while an entry
// is written becomes the next one, as a group. So the cost of an entry, which is mostly the
// disk's, is shared by the changes that come at a time, and one that comes alone waits for
// nothing.
type queues struct {
	f    *Client
	mu   sync.Mutex
	all  map[int]*queue
	done sync.WaitGroup // goroutines that write
}

type queue struct {
	f     *Client
	m     *topology.Map // whose log it is: its identity and whether it has groups
	shard int

	mu      sync.Mutex
	waiting []*waiting
	writes  bool // a goroutine does, until nothing waits
}

// waiting is a batch, and whoever waits for its number.
type waiting struct {
	batch *wire.Batch
	msg   []byte
	ctx   context.Context
	heard chan written // of one
}

type written struct {
	sequence uint64
	err      error
}

// of is the queue of a shard.
func (q *queues) of(m *topology.Map, shard int) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all[shard] == nil {
		q.all[shard] = &queue{f: q.f, shard: shard}
	}
	one := q.all[shard]
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.m == nil || one.m.Version < m.Version {
		one.m = m
	}
	return one
}

// publish lets a batch be written to the log, and returns the number of its entry. Its
// errors are those of [Client.publish].
func (q *queue) publish(ctx context.Context, b *wire.Batch, msg []byte) (sequence uint64, err error) {
	w := &waiting{b, msg, ctx, make(chan written, 1)}
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	if !q.writes {
		q.writes = true
		q.f.queues.done.Go(q.write)
	}
	q.mu.Unlock()
	select {
	case is := <-w.heard:
		return is.sequence, is.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	at := slices.Index(q.waiting, w)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	q.mu.Unlock()
	if at >= 0 {
		return 0, fmt.Errorf("%w: the log takes nothing: %w", ErrQuorum, ctx.Err())
	}
	select {
	case is := <-w.heard: // at the same moment
		return is.sequence, is.err
	default:
		return 0, fmt.Errorf("%w: %w", ErrUnacknowledged, ctx.Err())
	}
}

// write writes entries until nothing waits.
func (q *queue) write() {
	for {
		group, m := q.next()
		if len(group) == 0 {
			return
		}
		ctx, stop := anyOf(q.f.end, group)
		var msgs [][]byte
		for _, w := range group {
			msgs = append(msgs, w.msg)
		}
		id := group[0].batch.ID // so that the log knows a batch alone by its id, and a group by one
		sequence, err := q.f.publish(ctx, m, q.shard, id, wire.EncodeGroup(msgs))
		stop()
		for _, w := range group {
			w.heard <- written{sequence, err}
		}
	}
}

// next takes the batches of the next entry: as many as fit, of which no two are about one
// document. What does not go with them is in one after that, so that changes of a document
// stay in their order. Without any the goroutine that writes is to end.
func (q *queue) next() (group []*waiting, m *topology.Map) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := map[string]bool{} // of whole documents
	bytes := 0
	n := 0
	for ; n < len(q.waiting); n++ {
		w := q.waiting[n]
		size := wire.GroupSize(n+1, bytes+len(w.msg))
		if n > 0 && (w.batch.Choice != nil || group[0].batch.Choice != nil || size > q.f.c.BatchBytes || n == maxGroup) {
			break
		}
		if slices.ContainsFunc(w.batch.Documents, func(d vectors.Document) bool { return ids[topology.Whole(d.ID)] }) {
			break
		}
		for _, d := range w.batch.Documents {
			ids[topology.Whole(d.ID)] = true
		}
		bytes += len(w.msg)
		group = append(group, w)
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.writes = n > 0
	return group, q.m
}

// maxGroup is how many batches an entry has at most: answers to all of them are one message.
const maxGroup = 1024

// anyOf is a context that ends with outer, and when all that wait have given up.
func anyOf(outer context.Context, group []*waiting) (context.Context, func()) {
	ctx, stop := context.WithCancel(outer)
	var mu sync.Mutex
	left := len(group)
	var unbind []func() bool
	for _, w := range group {
		unbind = append(unbind, context.AfterFunc(w.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				stop()
			}
		}))
	}
	return ctx, func() {
		for _, u := range unbind {
			u()
		}
		stop()
	}
}

// publish writes an entry to a log, which knows it by an id, and returns its number. Errors:
// [ErrConflict], [ErrQuorum] if nobody has taken it, and [ErrUnacknowledged] otherwise.
func (f *Client) publish(ctx context.Context, m *topology.Map, s int, id wire.ID, entry []byte, more ...jetstream.PublishOpt) (sequence uint64, err error) {
	opts := append(more, jetstream.WithMsgID(id.String()), jetstream.WithExpectStream(bus.LogStream(m.ID(), s)), jetstream.WithRetryAttempts(5))
	ack, err := f.insist(ctx, bus.LogSubject(m.ID(), s), entry, opts)
	var api *jetstream.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.Is(err, ErrUnacknowledged):
		return 0, err
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return 0, fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, jetstream.ErrNoStreamResponse):
		return 0, fmt.Errorf("%w: %w", ErrQuorum, err) // nobody has taken it
	}
	return 0, fmt.Errorf("%w: %w", ErrUnacknowledged, err)
}

// insist asks a log to take an entry. It is asked again where there is no answer, as while
// JetStream finds a leader: the log knows the ids of entries that it has, for
// [bus.Duplicates]. What is said to a later request says nothing of those before that
// were not answered.
func (f *Client) insist(ctx context.Context, subject string, entry []byte, opts []jetstream.PublishOpt) (*jetstream.PubAck, error) {
	unanswered := false
	for until := time.Now().Add(100 * time.Second); ; {
		within, stop := context.WithTimeout(ctx, bus.Attempt)
		ack, err := f.bus.JS.Publish(within, subject, entry, opts...)
		stop()
		late := errors.Is(err, context.DeadlineExceeded)
		if late && ctx.Err() == nil && time.Now().Before(until) {
			unanswered = true
			continue
		}
		if err != nil && unanswered {
			err = fmt.Errorf("%w: %w", ErrUnacknowledged, err)
		}
		return ack, err
	}
}
