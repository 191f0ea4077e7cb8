package operate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// errTaken: somebody else has begun a generation.
var errTaken = errors.New("a generation was begun")

// Begin gives a collection that has nothing yet its first generation, so that documents
// can be added: a codec that is trained on src, or that of b.Train, and no documents.
// The identity says which collection is meant. It returns when the generation is searched,
// also where that was begun by somebody else, or by one who has died since. The error is
// [ErrState] while a generation with documents is built.
func (o *Operator) Begin(ctx context.Context, id string, src vectors.Source, b BuildOptions) (*topology.Map, error) {
	for {
		changed := o.watch.Changed()
		of, err := o.maps.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		m := of
		switch {
		case m.Current != nil:
			return m, nil
		case m.Next == nil:
			m, err = o.begin(ctx, m, src, b)
		case !m.Next.Bare():
			return nil, fmt.Errorf("%w: generation %d of %s is being built or waits", ErrState, m.Next.Number, m.Collection)
		}
		if err == nil {
			m, err = o.promote(ctx, m)
		}
		if !errors.Is(err, errTaken) {
			return m, o.left(ctx, of, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin makes the codec, and the generation of it that waits.
func (o *Operator) begin(ctx context.Context, m *topology.Map, src vectors.Source, b BuildOptions) (_ *topology.Map, err error) {
	if err := o.logs(ctx, m); err != nil { // whoever made the collection may have died before
		return m, err
	}
	free := func(m *topology.Map) error {
		if m.Current != nil || m.Next != nil {
			return errTaken
		}
		return nil
	}
	of := m
	m, release, err := o.reserve(ctx, m.ID(), free)
	if err != nil {
		return of, err
	}
	defer func() { release(err) }()
	g, err := o.generation(ctx, m, src.Dim(), &b.Train)
	if err != nil {
		return m, err
	}
	dir, remove, err := Scratch(b.Dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	path := filepath.Join(dir, "codec.plaid")
	if _, err := index.Train(ctx, path, src, &b.Train); err != nil {
		return m, err
	}
	shard, err := node.Examine(ctx, path, 0)
	if err != nil {
		return m, err
	}
	if g.Codec, err = objects.PutFile(ctx, o.store, codecName(m, g.Number), path); err != nil {
		return m, err
	}
	for s := range g.Shards { // a codec without documents is an index without documents
		g.Shards[s] = *shard
		g.Shards[s].Object, g.Shards[s].Applied = g.Codec, g.Start[s]
	}
	next, err := o.enter(ctx, m.ID(), g, free)
	if errors.Is(err, errTaken) || errors.Is(err, errReleased) { // no map ever named it
		err = errors.Join(errTaken, o.store.Delete(ctx, g.Codec.Name))
	}
	if err != nil {
		return m, err
	}
	return next, nil
}
