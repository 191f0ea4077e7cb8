package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Checkpoint makes objects of the shards as they are now, so that new replicas begin
// there, and cuts the logs off before the last entry that all replicas have applied.
func (o *Operator) Checkpoint(ctx context.Context, collection string) (*topology.Map, error) {
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return nil, err
	}
	if m.Current == nil {
		return nil, fmt.Errorf("%w: nothing is searched", ErrState)
	}
	now, err := o.checkpoint(ctx, m)
	if err != nil {
		// Nodes and logs that end with the collection say other things.
		if _, gone := o.maps.Find(ctx, m.ID()); errors.Is(gone, topology.ErrRemoved) {
			err = gone
		}
		return nil, o.left(ctx, m, err)
	}
	return now, nil
}

func (o *Operator) checkpoint(ctx context.Context, m *topology.Map) (*topology.Map, error) {
	for s := range m.Shards() {
		now, err := o.checkpointShard(ctx, m, s, func(uint64) bool { return true })
		if err != nil {
			return nil, err
		}
		if now != nil {
			m = now
		}
	}
	return m, nil
}

// checkpointShard is Checkpoint of a shard, if its log has entries that the object lacks, and
// so many bytes of them are worth it; the map is nil where nothing was done.
func (o *Operator) checkpointShard(ctx context.Context, m *topology.Map, s int, worth func(bytes uint64) bool) (*topology.Map, error) {
	best, err := o.furthest(m, s)
	if err != nil {
		return nil, err
	}
	stream, err := o.bus.JS.Stream(ctx, bus.LogStream(m.ID(), s))
	if err != nil {
		return nil, fmt.Errorf("log of shard %d: %w", s, err)
	}
	log, applied := stream.CachedInfo().State, m.Current.Shards[s].Applied
	if applied >= log.LastSeq {
		return nil, nil
	}
	entries := max(log.Msgs, 1)
	if !worth(log.Bytes / entries * min(log.LastSeq-applied, entries)) {
		return nil, nil
	}
	if m, err = o.checkpointOf(ctx, m, s, best.Node); err != nil {
		return nil, err
	}
	return m, o.trim(ctx, m, s)
}

// logShare: entries with one of so many parts of the bytes of their shard's object, which lacks
// them, are worth another object. Those that it has and that stay, since the log cannot be cut off
// during a build or while a node is away, are not.
const logShare = 10

// CheckpointLong makes objects of shards whose logs have become long, measured by their
// objects, and cuts these logs off: of the shards of which the node own is the first that is
// there; "": of all. Any number of processes may do so at a time.
func (o *Operator) CheckpointLong(ctx context.Context, own string) (made int, err error) {
	for _, m := range o.watch.Maps() {
		for s := range m.Shards() {
			if m.Current == nil || !o.leads(own, m, s) {
				continue
			}
			now, cerr := o.checkpointShard(ctx, m, s, func(bytes uint64) bool {
				return bytes >= uint64(m.Current.Shards[s].Object.Size)/logShare
			})
			if _, gone := o.watch.MapOf(m.ID()); cerr != nil && gone != nil { // it says other things
				break
			}
			if cerr != nil {
				err = errors.Join(err, fmt.Errorf("%s, shard %d: %w", m.Collection, s, cerr))
			}
			if now != nil {
				m, made = now, made+1
			}
		}
	}
	return made, err
}

// checkpointOf makes an object of the replica of a shard that a node has, for others to begin
// with.
func (o *Operator) checkpointOf(ctx context.Context, m *topology.Map, s int, name string) (*topology.Map, error) {
	number := m.Current.Number
	report, err := node.Send(ctx, o.bus.Conn, name, node.Order{Do: "checkpoint", Collection: m.ID(), Generation: number, Shard: s})
	if err != nil {
		return nil, err
	}
	return o.maps.Update(ctx, m.ID(), func(m *topology.Map) error {
		if m.Current == nil || m.Current.Number != number {
			return fmt.Errorf("%w: generation %d is over", ErrState, number)
		}
		if m.Current.Shards[s].Applied <= report.Shard.Applied {
			m.Current.Shards[s] = report.Shard
		}
		return nil
	})
}

// furthest is the replica of a shard that has applied most. Where a replica has carried out
// other entries than its log has, nobody knows yet which of them count: new replicas must not
// begin with either.
func (o *Operator) furthest(m *topology.Map, s int) (best topology.Replica, err error) {
	for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
		if r.Lost {
			return best, fmt.Errorf("%w: shard %d on node %s: %s: it has to be healed first", ErrDiffer, s, r.Node, r.Log)
		}
		if r.Ready && (best.Lease == nil || r.Applied > best.Applied) {
			best = r
		}
	}
	if best.Lease == nil {
		return best, fmt.Errorf("%w: shard %d has no replica that answers", ErrState, s)
	}
	return best, nil
}

// trim cuts a log off before what every replica, and every object of the map, has.
func (o *Operator) trim(ctx context.Context, m *topology.Map, s int) error {
	if m.Next != nil || len(m.Holding(time.Now())) > 0 {
		return nil // it begins with an earlier entry
	}
	least := m.Current.Shards[s].Applied
	for _, name := range m.Assigned[s] {
		there := false
		for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
			if r.Node == name {
				there, least = true, min(least, r.Applied)
			}
		}
		if !there {
			return nil // it is away, and comes back with what it had
		}
	}
	stream, err := o.bus.JS.Stream(ctx, bus.LogStream(m.ID(), s))
	if err != nil {
		return err
	}
	// The last entry stays: replicas know the log by it.
	return stream.Purge(ctx, jetstream.WithPurgeSequence(max(least, 1)))
}

// Restore brings back what JetStream has lost: maps, from the object store, and logs,
// which go on after what the replicas have. It is for a cluster of which the nodes, or
// their files, are there; without any, what the object store has is restored by the
// nodes themselves as soon as they see the map.
func (o *Operator) Restore(ctx context.Context, collection string) (*topology.Map, error) {
	m, err := o.maps.Recover(ctx, collection)
	if err != nil {
		return nil, err
	}
	if err := o.watch.Wait(ctx, func() bool { _, err := o.watch.MapOf(m.ID()); return err == nil }); err != nil {
		return nil, err
	}
	for s := range m.Shards() {
		if err := o.restoreLog(ctx, m, s); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (o *Operator) restoreLog(ctx context.Context, m *topology.Map, s int) error {
	applied := uint64(0)
	for _, g := range []*topology.Generation{m.Current, m.Next} {
		if g == nil {
			continue
		}
		applied = max(applied, g.Start[s], g.Shards[s].Applied)
		// Every node has to say what it has, or a log would begin that one of them is ahead of.
		if err := o.wait(ctx, m, func() bool {
			for _, name := range m.Assigned[s] {
				if !slices.ContainsFunc(o.watch.Replicas(m.ID(), g.Number, s), func(r topology.Replica) bool { return r.Node == name && (r.Ready || r.Log != "") }) {
					return g.Shards[s].Object.Name == ""
				}
			}
			return true
		}); err != nil {
			return fmt.Errorf("waiting for the nodes of shard %d: %w", s, err)
		}
		for _, r := range o.watch.Replicas(m.ID(), g.Number, s) {
			applied = max(applied, r.Applied)
		}
	}
	name := bus.LogStream(m.ID(), s)
	stream, err := o.bus.JS.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		return err
	default:
		if info := stream.CachedInfo(); info.State.LastSeq >= applied {
			return o.differing(m, s)
		}
		o.log.Warn("a log has lost entries and begins anew", "collection", m.Collection, "shard", s, "after", applied)
		if err := o.bus.JS.DeleteStream(ctx, name); err != nil {
			return err
		}
	}
	return o.bus.MakeLog(ctx, m.ID(), s, applied)
}

// differing is an error ([ErrDiffer]) where a log has all numbers, and other entries under
// them than a replica has: which of them count nobody but an operator can say.
func (o *Operator) differing(m *topology.Map, s int) error {
	for _, g := range []*topology.Generation{m.Current, m.Next} {
		if g == nil {
			continue
		}
		for _, r := range o.watch.Replicas(m.ID(), g.Number, s) {
			if r.Lost {
				return fmt.Errorf("%w: shard %d on node %s: %s. If the log is right, let the node rejoin: it puts its file aside and begins again", ErrDiffer, s, r.Node, r.Log)
			}
		}
	}
	return nil
}

// Rejoin has a node put its replicas of a collection aside and make them again of the
// objects that the map names and of the logs. It is for replicas whose log has other
// entries than they have applied, and returns when they answer again. Those of other nodes may
// have such a log too: they are made again one after another.
func (o *Operator) Rejoin(ctx context.Context, collection, name string) error {
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return err
	}
	if m.Current == nil {
		return fmt.Errorf("%w: nothing is searched", ErrState)
	}
	there := 0
	again := make([][]string, m.Shards())
	for s, nodes := range m.Assigned {
		if !slices.Contains(nodes, name) {
			continue
		}
		there++
		again[s] = []string{name}
		if _, err := node.Send(ctx, o.bus.Conn, name, node.Order{Do: "rejoin", Collection: m.ID(), Generation: m.Current.Number, Shard: s}); err != nil {
			return err
		}
	}
	if there == 0 {
		return fmt.Errorf("%w: node %s has no shard of %s", ErrNodes, name, collection)
	}
	return o.answer(ctx, m, m.Current.Number, again)
}
