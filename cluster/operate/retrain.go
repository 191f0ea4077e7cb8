package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// Retrain makes the next generation of what a collection has, and searches that in the
// place of the one before: a codec that is trained on what is stored, as choose says for so
// many tokens, and each shard encoded with it by a node that builds. Searches and changes go on. Documents
// keep their ordinals. The identity says which collection is meant. After an error, and
// when ctx ends, the collection is as it was.
//
// Each shard is encoded from an object of it, and what comes later is applied from its log.
// The codec is trained on the documents of as many shards as training makes use of: which
// document is in which shard is decided by a hash.
func (o *Operator) Retrain(ctx context.Context, id string, b BuildOptions, choose func(tokens int64) (index.BuildOptions, error)) (_ *topology.Map, err error) {
	if b.Progress == nil {
		b.Progress = func(string, int, int) {}
	}
	free := func(m *topology.Map) error {
		switch {
		case m.Next != nil:
			return fmt.Errorf("%w: generation %d of %s is being built or waits", ErrState, m.Next.Number, m.Collection)
		case m.Current == nil:
			return fmt.Errorf("%w: nothing is searched", ErrState)
		}
		return nil
	}
	if !slices.ContainsFunc(o.watch.Leases(), func(l *topology.Lease) bool { return l.Builds && !l.Draining }) {
		return nil, fmt.Errorf("%w: none of those that are there builds", ErrNodes)
	}
	of, release, err := o.reserve(ctx, id, free)
	if err != nil {
		return nil, err
	}
	defer func() { err = o.left(ctx, of, err) }()
	defer func() { release(err) }()
	number := of.Last
	m := of
	shards, _, err := o.shardsNow(ctx, m, majority) // what is reserved keeps the objects
	if err != nil {
		return nil, err
	}
	g := &topology.Generation{Number: number, Dim: m.Current.Dim, Model: m.Current.Model, Pool: m.Current.Pool, Shards: make([]topology.Shard, m.Shards())}
	tokens := int64(0)
	for _, s := range shards {
		input := s.Object
		if input == m.Current.Codec { // it has nothing yet, and begins with the next codec
			input = objects.Ref{}
		}
		g.Inputs, g.Start = append(g.Inputs, input), append(g.Start, s.Applied)
		tokens += int64(s.Tokens)
	}
	if b.Train, err = choose(tokens); err != nil {
		return nil, err
	}
	b.Progress("train", 0, 1)
	if g.Codec, err = o.codecOf(ctx, m, shards, number, b); err != nil {
		return nil, err
	}
	b.Progress("train", 1, 1)
	generation := m.Current.Number
	m, err = o.enter(ctx, id, g, func(m *topology.Map) error {
		if err := free(m); err != nil {
			return err
		}
		if m.Current.Number != generation {
			return fmt.Errorf("%w: generation %d is over", ErrState, generation)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if m, err = o.finish(ctx, m, b); err == nil {
		m, err = o.promote(ctx, m)
	}
	if err != nil {
		o.giveUpGeneration(ctx, id, number)
		return nil, err
	}
	return m, nil
}

// giveUpGeneration lets a generation go that waits.
func (o *Operator) giveUpGeneration(ctx context.Context, id string, number uint64) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	_, err := o.maps.Update(ctx, id, func(m *topology.Map) error {
		if m.Next != nil && m.Next.Number == number {
			m.Next = nil
		}
		return nil
	})
	if err != nil && !errors.Is(err, topology.ErrRemoved) {
		o.log.Warn("a generation that was given up stays, until it is discarded", "collection", id, "generation", number, "error", err)
	}
}

// samplePerCentroid is how many tokens a training makes use of for each centroid.
const samplePerCentroid = 256

// codecOf trains a codec on what the shards of a collection have in the object store.
func (o *Operator) codecOf(ctx context.Context, m *topology.Map, shards []topology.Shard, generation uint64, b BuildOptions) (ref objects.Ref, err error) {
	dir, remove, err := Scratch(b.Dir)
	if err != nil {
		return ref, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	largest := make([]int, 0, len(shards))
	total := int64(0)
	for s, shard := range shards {
		total += int64(shard.Tokens)
		largest = append(largest, s)
	}
	slices.SortStableFunc(largest, func(x, y int) int {
		return cmp.Compare(shards[y].Tokens, shards[x].Tokens)
	})
	if total == 0 {
		return ref, fmt.Errorf("%s: %w", m.Collection, index.ErrNoTokens)
	}
	if b.Train.Codec == nil && b.Train.Centroids == 0 {
		b.Train.Centroids = codec.DefaultK(total)
	}
	var sources []vectors.Source
	for _, s := range largest {
		if total <= 0 || len(sources) > 0 && sampled(sources) >= int64(max(b.Train.Centroids, 1))*samplePerCentroid {
			break
		}
		path := filepath.Join(dir, fmt.Sprintf("s%04d.plaid", s))
		if err := objects.Fetch(ctx, o.store, shards[s].Object, path); err != nil {
			return ref, err
		}
		ix, failed := index.Open(ctx, path, nil)
		if failed != nil {
			return ref, failed
		}
		defer func() { err = errors.Join(err, ix.Close()) }()
		snap, failed := ix.Snapshot()
		if failed != nil {
			return ref, failed
		}
		defer func() { err = errors.Join(err, snap.Close()) }()
		b.Train.Unnormalized = !snap.Header().Normalize
		if snap.Len() > 0 {
			sources = append(sources, snap.Source())
		}
	}
	src, err := vectors.Concat(sources...)
	if err != nil {
		return ref, err
	}
	return o.codec(ctx, dir, codecName(m, generation), src, b)
}

func sampled(sources []vectors.Source) (tokens int64) {
	for _, s := range sources {
		for i := range s.Len() {
			tokens += int64(s.Rows(i))
		}
	}
	return tokens
}
