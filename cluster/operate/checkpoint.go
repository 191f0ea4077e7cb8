package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Checkpoint makes objects of the shards as they are now, so that new replicas begin
// there, and cuts the logs off before the last entry that all replicas have applied. An object
// is made only if more than half of the replicas of its shard have the same documents: else the
// error is [ErrDiffer], or [ErrState] where too few are there to be compared. The other shards
// get theirs.
func (o *Operator) Checkpoint(ctx context.Context, collection string) (*topology.Map, error) {
	return o.checkpointAll(ctx, collection, func(m *topology.Map, s int) (*topology.Shard, error) {
		return o.objectIfWorth(ctx, m, s, func(uint64) bool { return true })
	})
}

// Trust makes objects of the replicas of a node, which are compared with nothing: an operator
// takes them for right where replicas differ and have no majority. Others that differ are made
// again of these objects when they rejoin, or are compared.
func (o *Operator) Trust(ctx context.Context, collection, name string) (*topology.Map, error) {
	there := false
	m, err := o.checkpointAll(ctx, collection, func(m *topology.Map, s int) (*topology.Shard, error) {
		if !slices.Contains(m.Assigned[s], name) {
			return nil, nil
		}
		there = true
		shard, _, err := o.object(ctx, m, s, []string{name}, func(int, int, int) bool { return true })
		return shard, err
	})
	if err == nil && !there {
		err = fmt.Errorf("%w: node %s has no shard of %s", ErrNodes, name, collection)
	}
	return m, err
}

func (o *Operator) checkpointAll(ctx context.Context, collection string, object func(m *topology.Map, s int) (*topology.Shard, error)) (*topology.Map, error) {
	m, err := o.maps.Get(ctx, collection)
	if err != nil {
		return nil, err
	}
	if m.Current == nil {
		return nil, fmt.Errorf("%w: nothing is searched", ErrState)
	}
	now, _, err := o.checkpoint(ctx, m, func(s int) (*topology.Shard, error) { return object(m, s) })
	if err != nil {
		// Nodes and logs that end with the collection say other things.
		if _, gone := o.maps.Find(ctx, m.ID()); errors.Is(gone, topology.ErrRemoved) {
			err = gone
		}
		return nil, o.left(ctx, m, err)
	}
	return now, nil
}

// entered is how long objects of shards may be in no map yet.
const entered = 10 * time.Minute

// checkpoint makes objects of shards, as far as there are any to be made, enters them in the
// map, all that come within some minutes in one version of it, and cuts off the logs.
func (o *Operator) checkpoint(ctx context.Context, m *topology.Map, object func(s int) (*topology.Shard, error)) (now *topology.Map, made int, err error) {
	now = m
	ready := map[int]topology.Shard{}
	var began time.Time
	enter := func() error {
		if len(ready) == 0 {
			return nil
		}
		next, err := o.enterShards(ctx, m, ready)
		if err != nil {
			return err
		}
		now, made = next, made+len(ready)
		for s := range ready {
			err = errors.Join(err, o.trim(ctx, now, s))
		}
		clear(ready)
		return err
	}
	for s := range m.Shards() {
		shard, oerr := object(s)
		if oerr != nil {
			if _, gone := o.watch.MapOf(m.ID()); gone != nil { // it says other things
				return now, made, gone
			}
			err = errors.Join(err, oerr)
			if ctx.Err() != nil {
				break
			}
		}
		if shard == nil {
			continue
		}
		if len(ready) == 0 {
			began = time.Now()
		}
		if ready[s] = *shard; time.Since(began) > entered {
			err = errors.Join(err, enter())
		}
	}
	return now, made, errors.Join(err, enter())
}

// enterShards lets replicas begin with objects, unless there are later ones.
func (o *Operator) enterShards(ctx context.Context, m *topology.Map, shards map[int]topology.Shard) (*topology.Map, error) {
	number := m.Current.Number
	return o.maps.Update(ctx, m.ID(), func(m *topology.Map) error {
		if m.Current == nil || m.Current.Number != number {
			return fmt.Errorf("%w: generation %d is over", ErrState, number)
		}
		for s, shard := range shards {
			has := m.Current.Shards[s].Applied
			if has < shard.Applied || has == shard.Applied && node.Compared(shard.Object) {
				m.Current.Shards[s] = shard
			}
		}
		return nil
	})
}

// objectIfWorth has an object made of a shard, if its log has entries that the object of the
// map lacks, and so many bytes of them are worth it; else it is nil. It is worth any where the log
// begins after the object, as one that was restored: no replica can begin with that.
func (o *Operator) objectIfWorth(ctx context.Context, m *topology.Map, s int, worth func(bytes uint64) bool) (*topology.Shard, error) {
	log, err := o.soundLog(ctx, m, s)
	if err != nil {
		return nil, err
	}
	applied := m.Current.Shards[s].Applied
	if applied >= log.LastSeq {
		return nil, nil
	}
	entries := max(log.Msgs, 1)
	if log.FirstSeq <= applied+1 && !worth(log.Bytes/entries*min(log.LastSeq-applied, entries)) {
		return nil, nil
	}
	shard, kept, err := o.object(ctx, m, s, o.following(m, s), majority)
	if err != nil {
		return nil, err
	}
	o.log.Debug("an object is made of a shard", "collection", m.Collection, "shard", s, "entry", shard.Applied, "alike", len(kept))
	return shard, nil
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
		if m.Current == nil {
			continue
		}
		_, n, cerr := o.checkpoint(ctx, m, func(s int) (*topology.Shard, error) {
			if !o.leads(own, m, s) {
				return nil, nil
			}
			return o.objectIfWorth(ctx, m, s, func(bytes uint64) bool { return bytes >= uint64(m.Current.Shards[s].Object.Size)/logShare })
		})
		made += n
		if _, gone := o.watch.MapOf(m.ID()); cerr != nil && gone == nil {
			err = errors.Join(err, cerr)
		}
	}
	return made, err
}

// soundLog is what the log of a shard has now. The error is [ErrDiffer] where a replica has carried
// out other entries, or later ones, whether or not it has noticed: nobody knows yet which of them
// count, and nothing must be made of either.
func (o *Operator) soundLog(ctx context.Context, m *topology.Map, s int) (log jetstream.StreamState, err error) {
	var furthest topology.Replica // known before the log is looked at, which grows
	for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
		if r.Lost {
			return log, fmt.Errorf("%w: shard %d on node %s: %s: it has to be healed first", ErrDiffer, s, r.Node, r.Log)
		}
		if r.Applied > furthest.Applied {
			furthest = r
		}
	}
	stream, err := o.logOf(ctx, m, s)
	if err != nil {
		return log, err
	}
	if log = stream.CachedInfo().State; log.LastSeq < furthest.Applied {
		return log, fmt.Errorf("%w: the log of shard %d of %s ends at %d and node %s has %d: it has to be healed first",
			ErrDiffer, s, m.Collection, log.LastSeq, furthest.Node, furthest.Applied)
	}
	return log, nil
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
	stream, err := o.logOf(ctx, m, s)
	if err != nil {
		return err
	}
	// The last entry stays: replicas know the log by it.
	return stream.Purge(ctx, jetstream.WithPurgeSequence(max(least, 1)))
}
