package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
)

// Backup makes one index file at path of all shards of a collection, encoded as they are,
// while searches and changes go on. It has every change that was acknowledged when it
// began; each shard is as it was at one moment, and all of them are of moments that follow
// each other. dir is for the files of shards; "": a temporary folder.
func (o *Operator) Backup(ctx context.Context, id, path, dir string) (r *index.CopyReport, err error) {
	var m *topology.Map
	for try := 1; ; try++ {
		of, err := o.maps.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if of.Current == nil {
			return nil, fmt.Errorf("%w: nothing is searched", ErrState)
		}
		if m, err = o.objectsNow(ctx, of); err == nil {
			break
		}
		if !errors.Is(err, ErrState) || try == 10 {
			return nil, o.left(ctx, of, err)
		}
		select { // another generation has taken over meanwhile
		case <-time.After(time.Duration(try) * 20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if dir, err = os.MkdirTemp(dir, "plaid-backup-*"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var from []index.CopyFrom
	for s, shard := range m.Current.Shards {
		file := filepath.Join(dir, fmt.Sprintf("s%04d.plaid", s))
		if err := objects.Fetch(ctx, o.store, shard.Object, file); err != nil {
			return nil, err
		}
		snap, done, err := opened(ctx, file)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, done()) }()
		from = append(from, index.CopyFrom{Snapshot: snap})
	}
	return index.Copy(ctx, path, from, &index.CopyOptions{Logger: o.log})
}

func opened(ctx context.Context, path string) (*index.Snapshot, func() error, error) {
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return nil, nil, err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, nil, errors.Join(err, ix.Close())
	}
	return snap, func() error { return errors.Join(snap.Close(), ix.Close()) }, nil
}

// objectsNow has objects made of all shards with all that their logs have now. A replica that
// is asked too soon is asked again, or another one.
func (o *Operator) objectsNow(ctx context.Context, m *topology.Map) (*topology.Map, error) {
	last := make([]uint64, m.Shards())
	for s := range last {
		stream, err := o.bus.JS.Stream(ctx, bus.LogStream(m.ID(), s))
		if err != nil {
			return m, fmt.Errorf("log of shard %d: %w", s, err)
		}
		last[s] = stream.CachedInfo().State.LastSeq
	}
	for s := range last {
		for try := 0; m.Current.Shards[s].Applied < last[s]; try++ {
			if try > 0 {
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
					return m, fmt.Errorf("shard %d: no replica has entry %d of its log: %w", s, last[s], ctx.Err())
				}
			}
			name := m.Assigned[s][try%len(m.Assigned[s])]
			if best, err := o.furthest(m, s); try == 0 && err == nil {
				name = best.Node
			}
			now, err := o.checkpointOf(ctx, m, s, name)
			switch {
			case errors.Is(err, node.ErrOrder) && ctx.Err() == nil && try < 10*len(m.Assigned[s]): // it is away
			case err != nil:
				return m, err
			default:
				m = now
			}
		}
	}
	return m, nil
}

// Fill gives a collection that has nothing yet the documents of an index file, encoded as
// they are. It returns when they are searched. The error is [ErrState] if there is, or
// comes, something else.
func (o *Operator) Fill(ctx context.Context, id, path, dir string) (_ *topology.Map, err error) {
	free := func(m *topology.Map) error {
		if m.Current != nil || m.Next != nil {
			return fmt.Errorf("%w: %s has a generation", ErrState, m.Collection)
		}
		return nil
	}
	of, err := o.maps.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := o.logs(ctx, of); err != nil { // whoever made the collection may have died before
		return nil, o.left(ctx, of, err)
	}
	m, release, err := o.reserve(ctx, id, free)
	if err != nil {
		return nil, o.left(ctx, of, err)
	}
	defer func() { err = o.left(ctx, of, err) }()
	defer func() { release(err) }()
	snap, done, err := opened(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	g, err := o.generation(ctx, m, snap.Dim(), &index.BuildOptions{Model: snap.Header().Model, Like: snap})
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "plaid-fill-*"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	parts := make([]*roaring.Bitmap, m.Shards())
	for s := range parts {
		parts[s] = roaring.New()
	}
	for ordinal := range snap.State().Docs {
		if snap.Live(ordinal) {
			parts[m.ShardOf(snap.ID(ordinal))].Add(ordinal)
		}
	}
	number := g.Number
	put := func(docs *roaring.Bitmap, name string) (*topology.Shard, error) {
		file := filepath.Join(dir, "part.plaid")
		defer os.Remove(file)
		if _, err := index.Copy(ctx, file, []index.CopyFrom{{Snapshot: snap, Docs: docs}}, &index.CopyOptions{Logger: o.log}); err != nil {
			return nil, err
		}
		shard, err := node.Examine(ctx, file, 0)
		if err != nil {
			return nil, err
		}
		shard.Object, err = objects.PutFile(ctx, o.store, name, file)
		return shard, err
	}
	codec, err := put(roaring.New(), codecName(m, number))
	if err != nil {
		return nil, err
	}
	g.Codec = codec.Object
	for s, docs := range parts {
		shard, err := put(docs, node.ObjectName(m.ID(), number, s, g.Start[s]))
		if err != nil {
			return nil, err
		}
		shard.Applied = g.Start[s]
		g.Shards[s] = *shard
	}
	if m, err = o.enter(ctx, id, g, free); err != nil {
		return nil, err
	}
	if m, err = o.promote(ctx, m); err != nil {
		o.giveUpGeneration(ctx, id, number)
		return nil, err
	}
	return m, nil
}
