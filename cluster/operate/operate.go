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
	"github.com/plaid-ir/plaid/cluster/node"
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
	return &Operator{bus: b, store: store, maps: topology.NewStore(store, b.Maps), watch: watch, log: log}
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
	o.group(m)
	m.Passages = o.speak(m, topology.ProtocolPassages)
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

// group lets logs have groups of changes from now on, if all nodes of the collection are
// there and read them.
func (o *Operator) group(m *topology.Map) {
	m.Groups = m.Groups || o.speak(m, topology.ProtocolGroups)
}

// speak tells whether all nodes of a collection are there and know a protocol.
func (o *Operator) speak(m *topology.Map, protocol int) bool {
	leases := o.watch.Leases()
	return !slices.ContainsFunc(m.Members, func(n topology.Member) bool {
		return !slices.ContainsFunc(leases, func(l *topology.Lease) bool { return l.Node == n.Name && l.Protocol >= protocol })
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

// answer waits until the replicas of a generation which nodes[s] have of each shard s answer,
// and none of them has carried out other entries than its log has.
func (o *Operator) answer(ctx context.Context, m *topology.Map, generation uint64, nodes [][]string) error {
	var waits string
	err := o.wait(ctx, m, func() bool {
		for s, nodes := range nodes {
			n, lost := 0, ""
			for _, r := range o.watch.Replicas(m.ID(), generation, s) {
				switch {
				case !slices.Contains(nodes, r.Node):
				case r.Lost:
					lost = fmt.Sprintf(", node %s: %s", r.Node, r.Log)
				case r.Ready:
					n++
				}
			}
			if n < len(nodes) {
				waits = fmt.Sprintf("shard %d of generation %d has %d of %d replicas%s", s, generation, n, len(nodes), lost)
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("%s: %w", waits, err)
	}
	return nil
}

// wait waits until ok, or until the collection is removed, which is an error.
func (o *Operator) wait(ctx context.Context, m *topology.Map, ok func() bool) error {
	var over error
	err := o.watch.Wait(ctx, func() bool {
		if _, over = o.watch.MapOf(m.ID()); errors.Is(over, topology.ErrRemoved) {
			return true
		}
		over = nil
		return ok()
	})
	return errors.Join(err, over)
}

// Promote lets the generation that was built take the place of the one that is searched,
// when every replica of it answers. Queries that have begun are finished with the old one.
func (o *Operator) Promote(ctx context.Context, collection string) (*topology.Map, error) {
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return nil, err
	}
	return o.promote(ctx, m)
}

func (o *Operator) promote(ctx context.Context, m *topology.Map) (*topology.Map, error) {
	if !m.Next.Built() {
		return nil, fmt.Errorf("%w: %s has no generation that is built and waits", ErrState, m.Collection)
	}
	number := m.Next.Number
	if err := o.answer(ctx, m, number, m.Assigned); err != nil {
		return nil, err
	}
	return o.maps.Update(ctx, m.ID(), func(m *topology.Map) error {
		if m.Current != nil && m.Current.Number == number {
			return nil // done by another operator
		}
		if m.Next == nil || m.Next.Number != number {
			return fmt.Errorf("%w: generation %d of %s waits no longer", ErrState, number, m.Collection)
		}
		m.Current, m.Next = m.Next, nil
		m.Current.Inputs = nil
		o.group(m)
		return nil
	})
}

// Discard gives up the generation that is built, and those that are about to be.
func (o *Operator) Discard(ctx context.Context, collection string) (*topology.Map, error) {
	return o.update(ctx, collection, func(m *topology.Map) error { m.Next, m.Reserved = nil, nil; return nil })
}

// Drain gives the shards of a node to others, and waits until they answer.
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
	return m, o.settled(ctx, m)
}

// Rebalance takes in nodes that have come, and waits until what they were given answers.
func (o *Operator) Rebalance(ctx context.Context, collection string) (*topology.Map, error) {
	nodes := o.Nodes()
	m, err := o.update(ctx, collection, func(m *topology.Map) error {
		for _, n := range nodes {
			m.Join(n)
		}
		o.group(m)
		m.Assign()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, o.settled(ctx, m)
}

// settled waits until every shard that is searched has its replicas.
func (o *Operator) settled(ctx context.Context, m *topology.Map) error {
	if m.Current == nil {
		return nil
	}
	return o.answer(ctx, m, m.Current.Number, m.Assigned)
}

// Check is what Verify found of a shard.
type Check struct {
	Shard    int            `json:"shard"`
	Replicas []ReplicaCheck `json:"replicas"`
}

// ReplicaCheck is a replica as its node has read it.
type ReplicaCheck struct {
	Node      string `json:"node"`
	Applied   uint64 `json:"applied"`
	Documents uint64 `json:"documents"`
	// Digest is that of the documents; of a node of an earlier version that of the file.
	Digest string `json:"digest,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Verify has every node read all of its replicas, and compares those of a shard at
// the same entry of its log. The error is [ErrDiffer] if any differ, are damaged, or do
// not come to the same entry until ctx ends.
func (o *Operator) Verify(ctx context.Context, collection string) ([]Check, error) {
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return nil, err
	}
	if m.Current == nil {
		return nil, fmt.Errorf("%w: nothing is searched", ErrState)
	}
	var all []Check
	var failed error
	for s := range m.Shards() {
		c, err := o.verify(ctx, m, s)
		if _, gone := o.watch.MapOf(m.ID()); errors.Is(gone, topology.ErrRemoved) {
			return nil, gone
		}
		all = append(all, *c)
		failed = errors.Join(failed, err)
	}
	return all, failed
}

func (o *Operator) verify(ctx context.Context, m *topology.Map, s int) (*Check, error) {
	for {
		c := &Check{Shard: s}
		var failed error
		same := true
		former := "" // a node of a version that does not tell the digest of its documents
		for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
			if !r.Ready {
				continue
			}
			report, err := node.Send(ctx, o.bus.Conn, r.Node, node.Order{Do: "verify", Collection: m.ID(), Generation: m.Current.Number, Shard: s})
			if err != nil {
				c.Replicas = append(c.Replicas, ReplicaCheck{Node: r.Node, Error: err.Error()})
				failed = errors.Join(failed, fmt.Errorf("shard %d: %w: %w", s, ErrDiffer, err))
				continue
			}
			check := ReplicaCheck{r.Node, report.Shard.Applied, report.Shard.Documents, report.Contents, ""}
			if check.Digest == "" {
				check.Digest, former = report.Shard.Digest, r.Node
			}
			c.Replicas = append(c.Replicas, check)
			same = same && report.Shard.Applied == c.Replicas[0].Applied
		}
		if len(c.Replicas) == 0 {
			return c, fmt.Errorf("shard %d: %w: no replica answers", s, ErrDiffer)
		}
		if failed != nil {
			return c, failed
		}
		if same {
			for _, r := range c.Replicas[1:] {
				switch {
				case r.Digest == c.Replicas[0].Digest:
				case former != "":
					return c, fmt.Errorf("shard %d: %w, or are of different versions: node %s says nothing of its documents", s, ErrDiffer, former)
				default:
					return c, fmt.Errorf("shard %d: %w: at entry %d nodes %s and %s have other documents", s, ErrDiffer, r.Applied, c.Replicas[0].Node, r.Node)
				}
			}
			return c, nil
		}
		select { // changes go on
		case <-ctx.Done():
			return c, fmt.Errorf("shard %d: %w: the replicas are at different entries of the log: %w", s, ErrDiffer, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
