// Package node is what a machine of a cluster does: it has replicas of the shards that
// the map gives it, answers queries, follows the logs of changes, and builds shards.
//
// A replica is an index file of its own. What it has applied of its log is in the file,
// in the same transaction as the change itself; so a node that was killed goes on where
// its files say.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/search"
)

// ErrConfig: a setting that makes no sense.
var ErrConfig = errors.New("bad setting of a node")

// Config of a node.
type Config struct {
	// Name of the node, of its files and of its subjects; Zone is what may fail with it.
	Name, Zone string
	// Dir keeps the replicas.
	Dir string
	// Queue is how many queries wait at most beside those that run; 0: 64. Workers is how
	// many run at a time; 0: two a processor.
	Queue, Workers int
	// Threads bounds the goroutines of one search and of one change; 0: one a processor.
	Threads int
	// Backend names the kernels; "": the best there is.
	Backend string
	// Builds: the node takes orders from the queue of builds.
	Builds bool
	// BuildWait is after how long without a sign of life an order is given to another node;
	// 0: 30 s.
	BuildWait time.Duration
	// Renew is how often the lease is renewed; 0: 3 s. It is a third of the lease at most.
	Renew time.Duration
	// Linger is how long a replica that the map no longer wants goes on answering those who
	// have not seen that yet; 0: 10 s.
	Linger time.Duration
	// Logger hears what the node does; nil: nobody does.
	Logger *slog.Logger
	// Tracing gets spans of queries, of changes, and of what takes long; nil: nobody does.
	Tracing trace.TracerProvider
}

func (c *Config) complete() error {
	if err := topology.CheckName(c.Name); err != nil {
		return err
	}
	if c.Queue < 0 || c.Workers < 0 || c.Threads < 0 || c.Renew < 0 || c.Linger < 0 || c.BuildWait < 0 || c.Dir == "" {
		return fmt.Errorf("%w: %s", ErrConfig, c.Name)
	}
	for _, d := range []struct {
		v   *int
		def int
	}{{&c.Queue, 64}, {&c.Workers, 2 * parallel.Processors()}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Renew, 3 * time.Second}, {&c.Linger, 10 * time.Second}, {&c.BuildWait, 30 * time.Second}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.Tracing == nil {
		c.Tracing = noop.NewTracerProvider()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Node is a running node.
type Node struct {
	c         Config
	bus       *bus.Bus
	store     objects.Store
	maps      *topology.Store
	watch     *topology.Watcher
	scheduler *search.Scheduler
	started   string
	log       *slog.Logger
	tracer    trace.Tracer

	ctx  context.Context // ends with the node
	end  context.CancelFunc
	done sync.WaitGroup
	subs []*nats.Subscription

	queries  queries
	looks    chan struct{} // those that run
	asked    atomic.Int32  // those that run and those that wait
	sets     sets
	announce chan struct{} // something to say before the next renewal
	metrics  metrics
	// connections counts how often the bus was reached again.
	connections atomic.Uint64

	mu       sync.Mutex
	replicas map[key]*replica
	draining bool
	inVain   []topology.FailedBuild // builds that it has tried last
	// uncompared are shards that its comparisons have passed over at the last time.
	uncompared []topology.Uncompared
	closed     bool
}

// key names a replica.
type key struct {
	collection string // its identity
	generation uint64
	shard      int
}

func (k key) String() string {
	return fmt.Sprintf("%s, generation %d, shard %d", k.collection, k.generation, k.shard)
}

// Start starts a node on a bus. It has what the map gives it as soon as it has fetched
// and opened that; see [Node.Ready].
func Start(ctx context.Context, b *bus.Bus, store objects.Store, c Config) (*Node, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	c.Renew = min(c.Renew, b.Lease/3) // others may have been told another lease
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	watch, err := topology.Watch(ctx, b)
	if err != nil {
		return nil, err
	}
	n := &Node{
		c: c, bus: b, store: store, maps: topology.NewStore(store, b.Maps), watch: watch, scheduler: search.NewScheduler(0, 0),
		started: wire.NewID().String(), log: c.Logger.With("node", c.Name), announce: make(chan struct{}, 1), replicas: map[key]*replica{},
	}
	n.tracer = c.Tracing.Tracer(bus.Scope)
	n.ctx, n.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := n.sweepUnfinished(); err != nil {
		n.log.Warn("what an earlier life of the node has left stays", "error", err)
	}
	n.metrics.init()
	n.queries.init(c.Queue)
	n.looks = make(chan struct{}, c.Queue)
	for _, s := range []struct {
		subject string
		handle  nats.MsgHandler
	}{{bus.QuerySubject(c.Name), n.hear}, {bus.LookSubject(c.Name), n.hearLook}, {bus.CancelSubject(c.Name), n.hearCancel}, {bus.AdminSubject(c.Name), n.hearOrder}} {
		sub, err := b.Conn.Subscribe(s.subject, s.handle)
		if err == nil {
			err = sub.SetPendingLimits(-1, 256<<20)
		}
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("node %s: %w", c.Name, err)
		}
		n.subs = append(n.subs, sub)
	}
	for range c.Workers {
		n.done.Go(n.work)
	}
	n.done.Go(n.reconcile)
	n.done.Go(n.renew)
	n.done.Go(n.suspect)
	if c.Builds {
		n.done.Go(n.build)
	}
	return n, nil
}

// Close ends the node at once, which loses nothing that was acknowledged. It may be
// called more than once.
func (n *Node) Close() {
	n.mu.Lock()
	closed := n.closed
	n.closed = true
	n.mu.Unlock()
	if closed {
		return
	}
	for _, s := range n.subs {
		_ = s.Unsubscribe() // the connection may be gone
	}
	n.end()
	n.queries.close()
	n.done.Wait()
	n.watch.Close()
}

// Drain says that the node is about to leave, finishes the queries that have come, and
// closes it. The files stay: the node may come back.
func (n *Node) Drain(ctx context.Context) error {
	n.mu.Lock()
	n.draining = true
	n.mu.Unlock()
	err := n.sayNow(ctx)
	if err == nil {
		err = n.queries.idle(ctx)
	}
	n.Close()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer stop()
	return errors.Join(err, n.bus.Nodes.Delete(ctx, n.c.Name))
}

// Ready waits until the node answers for all that the map gives it.
func (n *Node) Ready(ctx context.Context) error {
	return n.watch.Wait(ctx, func() bool {
		for k := range n.wanted() {
			if !slices.ContainsFunc(n.watch.Replicas(k.collection, k.generation, k.shard), func(r topology.Replica) bool {
				return r.Node == n.c.Name && r.Lease.Started == n.started && r.Ready
			}) {
				return false
			}
		}
		return true
	})
}

// Life is what its leases have as [topology.Lease.Started].
func (n *Node) Life() string { return n.started }

// Watcher tells what the node knows of the cluster.
func (n *Node) Watcher() *topology.Watcher { return n.watch }

// wanted is what the maps give the node.
func (n *Node) wanted() map[key]*topology.Map {
	wanted := map[key]*topology.Map{}
	for _, m := range n.watch.Maps() {
		for s, nodes := range m.Assigned {
			if !slices.Contains(nodes, n.c.Name) {
				continue
			}
			for _, g := range []*topology.Generation{m.Current, m.Next} {
				if g != nil && g.Shards[s].Object.Name != "" {
					wanted[key{m.ID(), g.Number, s}] = m
				}
			}
		}
	}
	return wanted
}

// reconcile starts replicas that the map wants and ends those that it does not want any
// more, once others answer in their place, those who ask have had time to see that, and others
// have what they have acknowledged. Those of a collection that was removed end at once.
func (n *Node) reconcile() {
	unwanted := map[key]time.Time{}
	tidied := attic{removeAll: os.RemoveAll}
	for {
		changed := n.watch.Changed()
		wanted := n.wanted()
		n.mu.Lock()
		for k := range wanted {
			delete(unwanted, k)
			if r := n.replicas[k]; r != nil {
				r.retire(false)
				continue
			}
			r := newReplica(n, k)
			n.replicas[k] = r
			n.done.Go(r.run)
		}
		var over, ended []*replica
		wake := 24 * time.Hour
		for k, r := range n.replicas {
			if wanted[k] != nil {
				continue
			}
			if n.removed(k.collection) {
				ended = append(ended, r)
				delete(unwanted, k)
				continue
			}
			since, counting := unwanted[k]
			switch {
			case !n.replaced(k, 0): // or not any more
				delete(unwanted, k)
				r.retire(false)
			case !counting:
				unwanted[k] = time.Now()
				wake = min(wake, n.c.Linger)
			case time.Since(since) < n.c.Linger:
				wake = min(wake, n.c.Linger-time.Since(since))
			case n.replaced(k, r.retire(true)):
				over = append(over, r)
				delete(n.replicas, k)
				delete(unwanted, k)
			}
		}
		n.mu.Unlock()
		for _, r := range ended {
			r.stop()
		}
		for _, r := range over {
			r.remove()
		}
		gone, err := n.tidy(&tidied, ended)
		if err != nil {
			n.log.Warn("what is left of collections cannot be taken away", "error", err)
			wake = min(wake, n.c.Renew)
		}
		n.forget(gone) // the lease says so when the files are gone, not before
		if len(over)+len(ended) > 0 {
			n.say()
		}
		select {
		case <-changed:
		case <-time.After(wake):
		case <-n.ctx.Done():
			return
		}
	}
}

// forget drops replicas that have ended, but none that a rejoin has put in their place.
func (n *Node) forget(all []*replica) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range all {
		if n.replicas[r.key] == r {
			delete(n.replicas, r.key)
		}
	}
}

// replaced tells whether a shard that this node is to give up is answered for by those that it
// was given to, and they have the entries of its log up to one, as many of them as acknowledge a
// change: until then this replica may be the only copy beside the log. Of a generation that is
// over the one that is searched has to have them. n.mu is held.
func (n *Node) replaced(k key, last uint64) bool {
	m, err := n.watch.MapOf(k.collection)
	if err != nil {
		return errors.Is(err, topology.ErrNoCollection) && n.bus.Conn.IsConnected()
	}
	if m.Generation(k.generation) == nil {
		return m.Current == nil || k.generation > m.Current.Number || n.complete(m, m.Current.Number, k.shard, last)
	}
	there := n.watch.Replicas(k.collection, k.generation, k.shard)
	for _, name := range m.Assigned[k.shard] {
		if !slices.ContainsFunc(there, func(r topology.Replica) bool { return r.Node == name && r.Ready }) {
			return false
		}
	}
	return n.complete(m, k.generation, k.shard, last)
}

// replica is nil where there is none, and where the collection was removed, which the
// node may have heard a moment before its replicas end.
func (n *Node) replica(k key) *replica {
	if n.removed(k.collection) {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.replicas[k]
}

// say lets the lease be renewed soon.
func (n *Node) say() {
	select {
	case n.announce <- struct{}{}:
	default:
	}
}

func (n *Node) renew() {
	tick := time.NewTicker(n.c.Renew)
	defer tick.Stop()
	for {
		ctx, stop := context.WithTimeout(n.ctx, 2*n.c.Renew)
		if err := n.sayNow(ctx); err != nil && n.ctx.Err() == nil {
			n.log.Warn("the lease cannot be renewed", "error", err)
		}
		stop()
		select {
		case <-n.announce:
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *Node) sayNow(ctx context.Context) error {
	l := topology.Lease{Node: n.c.Name, Zone: n.c.Zone, Started: n.started, Builds: n.c.Builds, Counts: n.metrics.counts()}
	n.mu.Lock()
	l.Draining = n.draining
	failed := slices.Clone(n.inVain)
	l.Uncompared = n.uncompared[:min(len(n.uncompared), maxUncompared)]
	for _, r := range n.replicas {
		l.Shards = append(l.Shards, r.state())
	}
	n.mu.Unlock()
	l.Failing = slices.DeleteFunc(failed, func(f topology.FailedBuild) bool {
		m, err := n.watch.MapOf(f.Collection)
		return err != nil || !f.Awaited(m)
	})
	slices.SortFunc(l.Shards, func(a, b topology.Serving) int { return compareServing(a, b) })
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = n.bus.Nodes.Put(ctx, n.c.Name, text)
	return err
}

// maxUncompared is how many shards that were not compared a lease names.
const maxUncompared = 16

// NoteComparison says what a comparison of replicas has found that this node was to make: how
// many replicas differed, and which shards were passed over.
func (n *Node) NoteComparison(unlike int, passed []topology.Uncompared) {
	n.metrics.differences.Add(uint64(unlike))
	n.mu.Lock()
	n.uncompared = passed
	n.mu.Unlock()
	n.say()
}

func (n *Node) path(k key) string {
	return filepath.Join(n.c.Dir, k.collection, fmt.Sprintf("g%d", k.generation), fmt.Sprintf("s%04d.plaid", k.shard))
}
