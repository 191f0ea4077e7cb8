package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Restore brings back what JetStream has lost: maps, from the object store, and logs,
// which go on after what the replicas have. It is for a cluster of which the nodes, or
// their files, are there; without any, what the object store has is restored by the
// nodes themselves as soon as they see the map. A replica that lacked something cannot get it
// from a log that was lost: its shard gets an object, with which it begins again.
func (o *Operator) Restore(ctx context.Context, collection string) (*topology.Map, error) {
	m, err := o.maps.Recover(ctx, collection)
	if err != nil {
		return nil, err
	}
	if err := o.watch.Wait(ctx, func() bool { _, err := o.watch.MapOf(m.ID()); return err == nil }); err != nil {
		return nil, err
	}
	var behind []int
	for s := range m.Shards() {
		if m, err = o.restoreLog(ctx, m, s); err != nil {
			return nil, err
		}
		if is, err := o.behind(ctx, m, s); err != nil {
			return nil, err
		} else if is {
			behind = append(behind, s)
		}
	}
	for _, s := range behind { // when all logs go on
		if m, err = o.bring(ctx, m, s); err != nil {
			return nil, fmt.Errorf("the logs go on, and a replica of shard %d lacks changes from before until plaid cluster checkpoint %s: %w", s, collection, err)
		}
	}
	return m, nil
}

// behind tells whether the log of a shard begins after what one of its replicas has, and after the
// object that it could begin again with.
func (o *Operator) behind(ctx context.Context, m *topology.Map, s int) (bool, error) {
	stream, err := o.logOf(ctx, m, s)
	if err != nil || m.Current == nil || m.Current.Shards[s].Applied+1 >= stream.CachedInfo().State.FirstSeq {
		return false, err
	}
	return slices.ContainsFunc(o.watch.Replicas(m.ID(), m.Current.Number, s), func(r topology.Replica) bool {
		return r.Applied+1 < stream.CachedInfo().State.FirstSeq
	}), nil
}

// bring makes an object of a shard for replicas that were behind when its log was lost. All nodes
// have told what they have: those that follow the log, which goes on after that, have all of it.
func (o *Operator) bring(ctx context.Context, m *topology.Map, s int) (*topology.Map, error) {
	err := o.wait(ctx, m, func() string {
		if len(o.following(m, s)) > 0 {
			return ""
		}
		return fmt.Sprintf("no replica of shard %d of %s follows its log yet", s, m.Collection)
	})
	if err != nil {
		return nil, err
	}
	shard, _, err := o.object(ctx, m, s, o.following(m, s), func(_, alike, there int) bool { return alike == there })
	if err != nil {
		return nil, err
	}
	return o.enterShards(ctx, m, map[int]topology.Shard{s: *shard})
}

// restoreLog returns the map, without a build that was given up.
func (o *Operator) restoreLog(ctx context.Context, m *topology.Map, s int) (*topology.Map, error) {
	applied := uint64(0)
	for _, g := range []*topology.Generation{m.Current, m.Next} {
		if g == nil {
			continue
		}
		applied = max(applied, g.Start[s], g.Shards[s].Applied)
		// Every node has to say what it has, or a log would begin that one of them is ahead of.
		err := o.wait(ctx, m, func() string {
			if g.Shards[s].Object.Name == "" {
				return ""
			}
			if silent := o.silent(m, g.Number, s); silent != "" {
				return fmt.Sprintf("restoring shard %d of %s takes all of its nodes: %s", s, m.Collection, silent)
			}
			return ""
		})
		if err != nil {
			return nil, err
		}
		for _, r := range o.watch.Replicas(m.ID(), g.Number, s) {
			if g == cmp.Or(m.Current, m.Next) { // the other one acknowledges nothing
				applied = max(applied, r.Applied)
			}
		}
	}
	name := bus.LogStream(m.ID(), s)
	stream, err := o.bus.JS.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case err != nil:
		return nil, err
	default:
		if info := stream.CachedInfo(); info.State.LastSeq >= applied {
			return m, o.differing(m, s)
		}
		o.log.Warn("a log has lost entries and begins anew", "collection", m.Collection, "shard", s, "after", applied)
		if err := o.bus.JS.DeleteStream(ctx, name); err != nil {
			return nil, err
		}
	}
	// The next generation cannot get from the log what it lacks, nor lose what it has beyond that.
	if g := m.Next; g == nil || g.Shards[s].Object.Name == "" || slices.ContainsFunc(o.watch.Replicas(m.ID(), g.Number, s), func(r topology.Replica) bool { return r.Applied != applied }) {
		if m, err = o.giveUp(ctx, m, s, applied+1); err != nil {
			return nil, err
		}
	}
	return m, o.bus.MakeLog(ctx, m.ID(), s, applied)
}

// silent says which nodes of a shard do not tell what they have of it.
func (o *Operator) silent(m *topology.Map, generation uint64, s int) string {
	there := o.there()
	var words []string
	for _, name := range m.Assigned[s] {
		switch {
		case !there[name]:
			words = append(words, "node "+name+" is away")
		case !slices.ContainsFunc(o.watch.Replicas(m.ID(), generation, s), func(r topology.Replica) bool { return r.Node == name && (r.Ready || r.Log != "") }):
			words = append(words, "node "+name+" has not opened its replica yet")
		}
	}
	return strings.Join(words, ", ")
}

// differing is an error ([ErrDiffer]) where a log has all numbers, and other entries under
// them than a replica has: which of them count nobody but an operator can say. Replicas of a
// generation that is built beside are healed.
func (o *Operator) differing(m *topology.Map, s int) error {
	g := cmp.Or(m.Current, m.Next)
	if g == nil {
		return nil
	}
	for _, r := range o.watch.Replicas(m.ID(), g.Number, s) {
		if r.Lost {
			return fmt.Errorf("%w: shard %d on node %s: %s. If the log is right, let the node rejoin: it puts its file aside and begins again", ErrDiffer, s, r.Node, r.Log)
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
	for s, nodes := range m.Assigned {
		if !slices.Contains(nodes, name) {
			continue
		}
		there++
		if _, err := o.send(ctx, name, node.Order{Do: "rejoin", Collection: m.ID(), Generation: m.Current.Number, Shard: s, Version: m.Version}); err != nil {
			return err
		}
	}
	if there == 0 {
		return fmt.Errorf("%w: node %s has no shard of %s", ErrNodes, name, collection)
	}
	return o.answer(ctx, m, m.Current.Number, func(now *topology.Map, s int) []string {
		if slices.Contains(now.Assigned[s], name) {
			return []string{name}
		}
		return nil
	})
}
