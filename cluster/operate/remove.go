package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// Remove removes the collection that has a name, with all that is in it, and returns what
// its map says now. Searches and changes of it end, and nodes drop their files as soon
// as they hear of it, those that are away when they come back. The name may be used again
// at once.
//
// A removal that was interrupted is finished by another one: existed is false where the
// map said already that there is no such collection. The error is
// [topology.ErrNoCollection] if there never was one.
func (o *Operator) Remove(ctx context.Context, collection string) (m *topology.Map, existed bool, err error) {
	if m, existed, err = o.maps.Remove(ctx, collection); err != nil {
		return nil, existed, err
	}
	err = o.sweep(ctx, m.ID())
	for _, id := range m.Former { // whose removal may have been interrupted
		err = errors.Join(err, o.sweep(ctx, id))
	}
	if err != nil {
		return m, existed, fmt.Errorf("%s is removed, and some of what it consisted of is left; removing it again goes on: %w", collection, err)
	}
	return m, existed, nil
}

// sweep deletes logs, orders and objects of a collection that was removed. Its map stays: what
// it has numbered is not to be numbered so again.
func (o *Operator) sweep(ctx context.Context, id string) error {
	err := o.bus.Forget(ctx, id)
	for _, kind := range []string{"inputs", "codecs", "shards"} {
		entries, lerr := o.store.List(ctx, fmt.Sprintf("%s/%s/", kind, id))
		err = errors.Join(err, lerr)
		for _, e := range entries {
			err = errors.Join(err, o.store.Delete(ctx, e.Name))
		}
	}
	return err
}

// left passes an error on. Where it is that the collection was removed meanwhile, what
// this operator has added to it since is removed too.
func (o *Operator) left(ctx context.Context, m *topology.Map, err error) error {
	if errors.Is(err, topology.ErrRemoved) {
		err = errors.Join(err, o.sweep(context.WithoutCancel(ctx), m.ID()))
	}
	return err
}

// Gone waits until no node that is there has replicas of a removed collection any more.
func (o *Operator) Gone(ctx context.Context, m *topology.Map) error {
	var have []string
	err := o.watch.Wait(ctx, func() bool {
		have = o.having(m.ID())
		return len(have) == 0
	})
	if err != nil {
		return fmt.Errorf("%s is removed; files of it are still on nodes %s: %w", m.Collection, strings.Join(have, ", "), err)
	}
	return nil
}

// having are the nodes that are there and have replicas of a collection.
func (o *Operator) having(id string) (nodes []string) {
	for _, l := range o.watch.Leases() {
		if slices.ContainsFunc(l.Shards, func(s topology.Serving) bool { return s.Collection == id }) {
			nodes = append(nodes, l.Node)
		}
	}
	return nodes
}
