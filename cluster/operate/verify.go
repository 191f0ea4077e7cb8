package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/topology"
)

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
	// Digest is that of the documents.
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
		orders := map[string]node.Order{}
		for _, r := range o.watch.Replicas(m.ID(), m.Current.Number, s) {
			if r.Ready && slices.Contains(m.Assigned[s], r.Node) { // others are about to drop theirs
				orders[r.Node] = node.Order{Do: "verify"}
			}
		}
		c := &Check{Shard: s}
		if len(orders) == 0 {
			return c, fmt.Errorf("shard %d: %w: no replica answers", s, ErrDiffer)
		}
		g, err := o.meet(ctx, m, s, orders)
		if err != nil {
			return c, fmt.Errorf("shard %d: %w: the replicas are at different entries of the log: %w", s, ErrDiffer, err)
		}
		for _, r := range g.reports {
			c.Replicas = append(c.Replicas, ReplicaCheck{r.node, r.Shard.Applied, r.Shard.Documents, r.Contents, ""})
		}
		var failed error
		missed := false
		for _, name := range slices.Sorted(maps.Keys(g.absent)) {
			err := g.absent[name]
			if missed = missed || errors.Is(err, errElsewhere); missed {
				continue
			}
			c.Replicas = append(c.Replicas, ReplicaCheck{Node: name, Error: err.Error()})
			failed = errors.Join(failed, fmt.Errorf("shard %d: %w: %w", s, ErrDiffer, err))
		}
		if failed != nil {
			return c, failed
		}
		if missed { // changes go on
			if err := pause(ctx, 2*pace); err != nil {
				return c, fmt.Errorf("shard %d: %w: %w: %w", s, ErrDiffer, errElsewhere, err)
			}
			continue
		}
		for _, r := range c.Replicas[1:] {
			if r.Digest != c.Replicas[0].Digest {
				return c, fmt.Errorf("shard %d: %w: at entry %d nodes %s and %s have other documents", s, ErrDiffer, r.Applied, c.Replicas[0].Node, r.Node)
			}
		}
		return c, nil
	}
}
