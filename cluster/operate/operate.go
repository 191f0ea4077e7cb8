// Package operate is what an operator does with a cluster: collections are made, built,
// promoted, moved, checked and restored.
package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
)

var (
	// ErrState: the collection is not in a state for that.
	ErrState = errors.New("the collection is not in a state for that")
	// ErrNodes: there are too few nodes.
	ErrNodes = errors.New("too few nodes")
	// ErrDiffer: replicas that should be alike are not.
	ErrDiffer = errors.New("replicas differ")
)

// Operator works on a cluster. It is safe for concurrent use, also by several
// operators at a time.
type Operator struct {
	bus   *bus.Bus
	store objects.Store
	maps  *topology.Store
	watch *topology.Watcher
	own   bool // the watcher
	log   *slog.Logger

	// Waiting, where set, is told in words what is waited for that takes long.
	Waiting func(what string)
	rest    time.Duration // how long a promotion waits for replicas beyond those that are enough
}

// New returns an operator; log may be nil.
func New(ctx context.Context, b *bus.Bus, store objects.Store, log *slog.Logger) (*Operator, error) {
	watch, err := topology.Watch(ctx, b)
	if err != nil {
		return nil, err
	}
	o := Over(b, watch, store, log)
	o.own = true
	return o, nil
}

// Over returns an operator over a watcher that others use too, and which stays the
// caller's; log may be nil.
func Over(b *bus.Bus, watch *topology.Watcher, store objects.Store, log *slog.Logger) *Operator {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Operator{bus: b, store: store, maps: topology.NewStore(store, b.Maps), watch: watch, log: log, rest: time.Minute}
}

// Close ends the operator.
func (o *Operator) Close() {
	if o.own {
		o.watch.Close()
	}
}

// Watcher tells what the operator knows of the cluster.
func (o *Operator) Watcher() *topology.Watcher { return o.watch }

// Nodes are those that there are now, without those that are about to leave.
func (o *Operator) Nodes() []topology.Member {
	var nodes []topology.Member
	for _, l := range o.watch.Leases() {
		if !l.Draining {
			nodes = append(nodes, topology.Member{Name: l.Node, Zone: l.Zone})
		}
	}
	return nodes
}

// CreateOptions of a collection. Zero values: one shard, one replica, and of R replicas
// R/2 + 1 acknowledge a change.
type CreateOptions struct {
	Shards, Replicas, Acks int
	// Settings are kept in the map for whoever makes the collection: JSON, or nil.
	Settings json.RawMessage
}

// Create makes a collection without documents, on the nodes that there are, and the logs
// of its shards. It is another collection than any that had the name before. The error is
// [topology.ErrExists] if there is one of the name.
func (o *Operator) Create(ctx context.Context, collection string, c CreateOptions) (*topology.Map, error) {
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Acks == 0 {
		c.Acks = c.Replicas/2 + 1
	}
	nodes := o.Nodes()
	if len(nodes) < c.Replicas {
		return nil, fmt.Errorf("%w: %d, and %d replicas are wanted", ErrNodes, len(nodes), c.Replicas)
	}
	m, err := topology.New(collection, c.Shards, c.Replicas, c.Acks, nodes)
	if err != nil {
		return nil, err
	}
	m.Incarnation, m.Settings = topology.NewIncarnation(), c.Settings
	if err := o.maps.Create(ctx, m); err != nil {
		return nil, err
	}
	if len(m.Former) > 0 {
		if err := o.sweep(ctx, m.Former[0]); err != nil { // what an interrupted removal has left
			o.log.Warn("something is left of a removed collection", "collection", m.Former[0], "error", err)
		}
	}
	err = o.logs(ctx, m)
	if err == nil {
		if _, gone := o.maps.Find(ctx, m.ID()); errors.Is(gone, topology.ErrRemoved) {
			err = gone
		}
	}
	return m, o.left(ctx, m, err)
}

// Configure changes the settings that are kept in the map for whoever made the collection.
func (o *Operator) Configure(ctx context.Context, id string, change func(settings json.RawMessage) (json.RawMessage, error)) (*topology.Map, error) {
	return o.maps.Update(ctx, id, func(m *topology.Map) (err error) {
		m.Settings, err = change(m.Settings)
		return err
	})
}

// update changes the map of the collection that has a name now.
func (o *Operator) update(ctx context.Context, name string, change func(*topology.Map) error) (*topology.Map, error) {
	m, err := o.maps.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return o.maps.Update(ctx, m.ID(), change)
}

// logs makes the logs that are not there.
func (o *Operator) logs(ctx context.Context, m *topology.Map) error {
	for s := range m.Shards() {
		if err := o.bus.MakeLog(ctx, m.ID(), s, 0); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
	}
	return nil
}

// Discard gives up the generation that is built, and those that are about to be.
func (o *Operator) Discard(ctx context.Context, collection string) (*topology.Map, error) {
	return o.update(ctx, collection, func(m *topology.Map) error { m.Next, m.Reserved = nil, nil; return nil })
}

// Drain gives the shards of a node to others, and waits until these answer and the node, if it is
// there, has handed over what it has: it may be stopped for good then.
func (o *Operator) Drain(ctx context.Context, collection, name string) (*topology.Map, error) {
	m, err := o.update(ctx, collection, func(m *topology.Map) error {
		if m.Leave(name); len(m.Members) < m.Replicas {
			return fmt.Errorf("%w: without %s there are %d, and %d replicas are wanted", ErrNodes, name, len(m.Members), m.Replicas)
		}
		m.Assign()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := o.settled(ctx, m); err != nil {
		return m, err
	}
	return m, o.wait(ctx, m, func() string {
		if slices.Contains(o.having(m.ID()), name) {
			return fmt.Sprintf("%s has not handed over all that it has of %s", name, m.Collection)
		}
		return ""
	})
}

// Rebalance takes in nodes that have come, and waits until what they were given answers.
func (o *Operator) Rebalance(ctx context.Context, collection string) (*topology.Map, error) {
	nodes := o.Nodes()
	m, err := o.update(ctx, collection, func(m *topology.Map) error {
		for _, n := range nodes {
			m.Join(n)
		}
		m.Assign()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, o.settled(ctx, m)
}
