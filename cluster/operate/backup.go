package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
)

// Backup makes one index file at path of all shards of a collection, encoded as they are,
// while searches and changes go on. It has every change that was acknowledged when it
// began; each shard is as it was at one moment, and all of them are of moments that follow
// each other. Replicas that are there have to agree, or more than half of all. dir is for the
// files of shards; "": a temporary folder.
func (o *Operator) Backup(ctx context.Context, id, path, dir string) (r *index.CopyReport, err error) {
	for try := 1; ; try++ {
		m, err := o.maps.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if m.Current == nil {
			return nil, fmt.Errorf("%w: nothing is searched", ErrState)
		}
		r, err = o.backup(ctx, m, path, dir)
		// Another generation has taken over meanwhile, replicas come to answer in a moment, or an
		// object has given way to that of a checkpoint, and was removed.
		if again := errors.Is(err, ErrState) || errors.Is(err, objects.ErrNotFound); !again || try == 10 {
			return r, o.left(ctx, m, err)
		}
		if err := pause(ctx, time.Duration(try)*100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (o *Operator) backup(ctx context.Context, m *topology.Map, path, dir string) (r *index.CopyReport, err error) {
	shards, made, err := o.shardsNow(ctx, m, func(all, alike, there int) bool { return alike == there || majority(all, alike, there) })
	defer func() { // no map names them
		for _, object := range made {
			err = errors.Join(err, o.store.Delete(context.WithoutCancel(ctx), object.Name))
		}
	}()
	if err != nil {
		return nil, err
	}
	dir, remove, err := Scratch(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var from []index.CopyFrom
	for s, shard := range shards {
		file := filepath.Join(dir, fmt.Sprintf("s%04d.plaid", s))
		if err := objects.Fetch(ctx, o.store, shard.Object, file); err != nil {
			return nil, err
		}
		snap, done, failed := opened(ctx, file)
		if failed != nil {
			return nil, failed
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

// shardsNow are the shards of a collection with objects that have all that their logs have now:
// those of the map, where nothing has changed since, and others, which are made and are in no
// map. enough says when replicas agree, as for object.
func (o *Operator) shardsNow(ctx context.Context, m *topology.Map, enough quorum) (shards []topology.Shard, made []objects.Ref, err error) {
	for s, shard := range m.Current.Shards {
		log, err := o.soundLog(ctx, m, s)
		if err != nil {
			return nil, made, err
		}
		if shard.Applied < log.LastSeq {
			now, _, err := o.object(ctx, m, s, o.following(m, s), enough)
			if err != nil {
				return nil, made, err
			}
			shard, made = *now, append(made, now.Object)
		}
		shards = append(shards, shard)
	}
	return shards, made, nil
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
	dir, remove, err := Scratch(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
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
