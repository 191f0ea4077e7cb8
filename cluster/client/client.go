// Package client is the front of a cluster: a [search.Searcher] over the shards of a
// collection, and the way in for changes.
//
// A query meets one generation, and is answered from all shards or refused; with
// [Config.AllowPartial] a result may lack shards, and then says which and how many
// documents those have. Which replica is asked depends on how long those have taken
// lately and how much waits for them; one that takes longer than usual is not waited
// for alone.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/search"
)

// Errors of this package; test with errors.Is.
var (
	// ErrPartial: shards were not searched; see [*PartialError].
	ErrPartial = errors.New("not all shards were searched")
	// ErrTooLarge: more is asked for than is held at a time.
	ErrTooLarge = errors.New("too much at a time")
	// ErrEmpty: the collection has no generation that can be searched.
	ErrEmpty = errors.New("nothing has been built and promoted yet")
	// ErrQuorum: a shard has too few replicas for a change to be kept; nothing was changed.
	ErrQuorum = errors.New("too few replicas take changes")
	// ErrUnacknowledged: a change was sent and too few replicas said in time that they
	// have it. It may be made, now or later.
	ErrUnacknowledged = errors.New("outcome unknown: too few replicas have acknowledged the change")
	// ErrRefused: a change that no replica makes, such as of an id that is there already.
	ErrRefused = errors.New("the change is refused")
	// ErrConflict: a conditional change whose condition does not hold.
	ErrConflict = errors.New("the shard has been changed meanwhile")
)

// PartialError says what is missing. It wraps [ErrPartial].
type PartialError struct {
	Coverage search.Coverage
}

func (e *PartialError) Error() string {
	m := e.Coverage.Missing
	if len(m) == 0 {
		return ErrPartial.Error()
	}
	more := ""
	if len(m) > 1 {
		more = fmt.Sprintf(", and %d more", len(m)-1)
	}
	return fmt.Sprintf("%v: %d of %d documents are missing: %s: %s%s", ErrPartial, e.Coverage.Of-e.Coverage.Docs, e.Coverage.Of, m[0].Name, m[0].Reason, more)
}

// Unwrap returns ErrPartial.
func (e *PartialError) Unwrap() error { return ErrPartial }

// Config of a client.
type Config struct {
	// Collection that is searched.
	Collection string
	// Zone of the machine: replicas in it are asked first.
	Zone string
	// Deadline is how long a search may take, if its context does not say less; 0: 10 s.
	Deadline time.Duration
	// WriteDeadline is how long a change may take; 0: 30 s.
	WriteDeadline time.Duration
	// AllowPartial: a search may leave out shards that do not answer in time.
	AllowPartial bool
	// HedgeBudget is the part of requests that may be made a second time because a node
	// takes longer than usual; 0: 0.05, negative: none.
	HedgeBudget float64
	// HedgeFloor is the least time to wait for a node alone; 0: 2 ms.
	HedgeFloor time.Duration
	// BatchBytes is about how large a batch of changes is; 0: 4 MiB.
	BatchBytes int
	// Logger hears of what goes wrong and is made up for; nil: nobody does.
	Logger *slog.Logger
}

func (c *Config) complete() error {
	if err := topology.CheckName(c.Collection); err != nil {
		return err
	}
	if c.Deadline < 0 || c.WriteDeadline < 0 || c.BatchBytes < 0 || c.HedgeFloor < 0 {
		return fmt.Errorf("%w: no setting of a client may be negative", search.ErrOption)
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Deadline, 10 * time.Second}, {&c.WriteDeadline, 30 * time.Second}, {&c.HedgeFloor, 2 * time.Millisecond}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.HedgeBudget == 0 {
		c.HedgeBudget = 0.05
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = 4 << 20
	}
	c.BatchBytes = min(c.BatchBytes, bus.MaxPayload/2)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Client searches and changes one collection: the one that has the name when the client
// sees the name first. If it is removed everything that is asked of the client fails with
// [topology.ErrRemoved], also what is under way, and where another collection has the name,
// with [topology.ErrReplaced]: a new client is one of that. It is safe for concurrent use.
type Client struct {
	c      Config
	bus    *bus.Bus
	watch  *topology.Watcher
	own    bool // the watcher
	peers  peers
	acks   *acks
	queues queues

	end  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	id      string         // identity of the collection, as soon as there is one
	seen    map[int]uint64 // entries of each shard's log that its own changes were
	// generation is the one that is searched, since when, if this client has seen another.
	generation uint64
	since      time.Time
}

var _ search.Searcher = (*Client)(nil)

// New returns a client over a connection, which stays the caller's.
func New(ctx context.Context, conn *nats.Conn, c Config) (*Client, error) {
	b, err := bus.Open(ctx, conn)
	if err != nil {
		return nil, err
	}
	watch, err := topology.Watch(ctx, b)
	if err != nil {
		return nil, err
	}
	f, err := Over(b, watch, c)
	if err != nil {
		watch.Close()
		return nil, err
	}
	f.own = true
	return f, nil
}

// Over returns a client over a bus and a watcher that others use too, and which stay
// the caller's.
func Over(b *bus.Bus, watch *topology.Watcher, c Config) (*Client, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	f := &Client{c: c, bus: b, watch: watch, seen: map[int]uint64{}}
	f.queues.f, f.queues.all = f, map[int]*queue{}
	f.peers.init(c.HedgeBudget)
	f.end, f.stop = context.WithCancel(context.Background())
	var err error
	f.acks, err = listen(b.Conn)
	return f, err
}

// Watcher tells what the client knows of the cluster.
func (f *Client) Watcher() *topology.Watcher { return f.watch }

// begin is a call, which Close waits for until done.
func (f *Client) begin(ctx context.Context, most time.Duration) (context.Context, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		if f.id != "" { // drained since the collection was removed, that is the news
			if _, err := f.watch.MapOf(f.id); errors.Is(err, topology.ErrRemoved) {
				return nil, nil, err
			}
		}
		return nil, nil, search.ErrClosed
	}
	f.running.Add(1)
	ctx, cancel := context.WithTimeout(ctx, most)
	unbind := context.AfterFunc(f.end, cancel)
	return ctx, func() { unbind(); cancel(); f.running.Done() }, nil
}

// Close implements [search.Searcher].
func (f *Client) Close() error {
	f.stop()
	return f.Drain()
}

// Drain is Close that lets what is under way come to its end.
func (f *Client) Drain() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.running.Wait()
	f.stop()
	f.queues.done.Wait()
	f.acks.close()
	if f.own {
		f.watch.Close()
	}
	return nil
}

// Describe implements [search.Searcher]: documents are counted as nodes said last.
func (f *Client) Describe(ctx context.Context) (search.Description, error) {
	_, done, err := f.begin(ctx, f.c.Deadline)
	if err != nil {
		return search.Description{}, err
	}
	defer done()
	m, err := f.collection()
	if err != nil {
		return search.Description{}, err
	}
	g := m.Current
	d := search.Description{Dim: g.Dim, Model: g.Model, Pool: g.Pool, Generation: g.Number, Lineage: g.Number, Backend: "cluster"}
	for s := range g.Shards {
		d.Docs += f.documents(m, s)
		d.Tokens += g.Shards[s].Tokens
	}
	return d, nil
}

// Map is the map of the client's collection as it is now. It is not to be changed.
func (f *Client) Map() (*topology.Map, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.id != "" {
		return f.watch.MapOf(f.id)
	}
	m, err := f.watch.Map(f.c.Collection)
	if err == nil {
		f.id = m.ID()
	}
	return m, err
}

// removed is the error of a collection that was removed, nil as long as it is there.
func (f *Client) removed() error {
	if _, err := f.Map(); errors.Is(err, topology.ErrRemoved) {
		return err
	}
	return nil
}

// collection is the map, of which there is something to search.
func (f *Client) collection() (*topology.Map, error) {
	m, err := f.Map()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Current == nil {
		f.generation = noGeneration
		return nil, fmt.Errorf("%s: %w", f.c.Collection, ErrEmpty)
	}
	if number := m.Current.Number; number != f.generation {
		if f.generation != 0 {
			f.since = time.Now()
		}
		f.generation = number
	}
	return m, nil
}

// noGeneration is that of a collection which has none.
const noGeneration = math.MaxUint64

// settles waits for the next change where the generation is searched for so short a time
// that this client need not have heard of the nodes that serve it: maps and leases do
// not come together. It tells whether to look again.
func (f *Client) settles(ctx context.Context, changed <-chan struct{}) bool {
	f.mu.Lock()
	left := settle - time.Since(f.since)
	f.mu.Unlock()
	if left <= 0 {
		return false
	}
	late := time.NewTimer(left)
	defer late.Stop()
	select {
	case <-changed:
	case <-late.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// documents is how many a shard has, as far as that is known.
func (f *Client) documents(m *topology.Map, shard int) int64 {
	n, applied := m.Current.Shards[shard].Documents, m.Current.Shards[shard].Applied
	for _, r := range f.watch.Replicas(m.ID(), m.Current.Number, shard) {
		if r.Applied > applied {
			n, applied = r.Documents, r.Applied
		}
	}
	return int64(n)
}
