package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

// BuildOptions are the options of a bulk build.
type BuildOptions struct {
	// Train says how the codec is trained, or which one is used, and how documents are encoded. With Input and Resume,
	// an interrupted build is continued with its files in Dir.
	Train index.BuildOptions
	// Dir is where the index files are built before they are put into the store. They need twice their size. "" means
	// a temporary folder.
	Dir    string
	Growth collection.Growth // the same as on the nodes
	// Progress, unless it is nil, is called with the number of shards that are in the store.
	Progress func(done, total int)
	Logger   *slog.Logger
}

// Build replaces all documents of a collection with those of sources. The collection must have been declared.
//
// This machine trains one codec, encodes the documents, and puts an index file of each shard into the store. Nodes
// search the files when all of them are there. Changes that are made to the collection during the build are applied
// to the new documents.
//
// Errors: [collection.ErrUnknown], [ErrConflict] if another build has begun since, and those of [index.Build].
func Build(ctx context.Context, s objects.Store, name string, o BuildOptions,
	src ...vectors.Source) (r *index.BuildReport, err error) {
	source, err := vectors.Concat(src...)
	if err != nil {
		return nil, err
	}
	growth, err := o.Growth.Completed()
	if err != nil {
		return nil, err
	}
	m, err := existingMap(ctx, s, name)
	if err != nil {
		return nil, err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "plaid-build-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	b := &bulkBuild{store: s, id: m.ID, growth: growth, progress: o.Progress, log: o.Logger}
	path := filepath.Join(o.Dir, "whole.plaid")
	_, err = b.publishFile(ctx, path, func() error {
		if r, err = index.Build(ctx, path, source, &o.Train); err != nil {
			return err
		}
		return verifyFile(ctx, path, o.Logger)
	})
	return r, err
}

// verifyFile reads and checks every byte of an index file.
func verifyFile(ctx context.Context, path string, log *slog.Logger) error {
	ix, err := index.Open(ctx, path, &index.Options{Logger: log})
	if err != nil {
		return err
	}
	return errors.Join(ix.Verify(ctx), ix.Close())
}

// bulkBuild replaces all documents of a collection at once.
type bulkBuild struct {
	store       objects.Store
	id          string // of the collection
	mustBeEmpty bool   // the collection must have no documents
	growth      collection.Growth
	progress    func(done, total int)
	log         *slog.Logger

	generation uint64
	logEnds    []journal.Position // ends of the shards' logs when the build began
}

// publishFile puts the documents of an index file, which write creates at path, into the store, and makes them the
// generation that is searched. It removes the file.
func (b *bulkBuild) publishFile(ctx context.Context, path string, write func() error) (m *Map, err error) {
	defer func() {
		if err != nil {
			b.releaseGeneration(context.WithoutCancel(ctx))
		}
	}()
	if err := b.reserveGeneration(ctx); err != nil {
		return nil, err
	}
	if err := write(); err != nil {
		return nil, err
	}
	ix, err := index.Open(ctx, path, &index.Options{Logger: b.log})
	if err != nil {
		return nil, err
	}
	m, err = b.publishIndex(ctx, ix, filepath.Dir(path))
	return m, errors.Join(err, ix.Close(), os.Remove(path))
}

// changeMap changes the map of the collection. With mustBeEmpty, the error is [collection.ErrExists] if the collection
// has documents.
func (b *bulkBuild) changeMap(ctx context.Context, change func(*Map) error) (*Map, error) {
	return updateMap(ctx, b.store, nameFromID(b.id), forCollection(b.id, func(m *Map) error {
		if b.mustBeEmpty && m.Current != nil {
			return fmt.Errorf("%w: %q has documents", collection.ErrExists, m.Name)
		}
		return change(m)
	}))
}

// reserveGeneration reserves the generation, so that no log is cut during the build, and finds the ends of the logs.
func (b *bulkBuild) reserveGeneration(ctx context.Context) error {
	m, err := b.changeMap(ctx, func(m *Map) error {
		m.reserve(&m.Building, newToken())
		return nil
	})
	if err != nil {
		return err
	}
	b.generation, b.logEnds = m.Building.Generation, nil
	for s := range m.Shards {
		log := journal.New(b.store, m.ID, s, journal.Options{})
		end := journal.Position{}
		if m.Current != nil {
			checkpoints, err := log.Checkpoints(ctx, m.Current.Number)
			if err != nil {
				return err
			}
			if len(checkpoints) > 0 {
				end = checkpoints[len(checkpoints)-1].Position
			}
		}
		// Read the log to its end, from the newest checkpoint on.
		if end, err = log.Read(ctx, end, 0, func(journal.Entry) error { return nil }); err != nil {
			return fmt.Errorf("shard %d: %w", s, err)
		}
		b.logEnds = append(b.logEnds, end)
	}
	return nil
}

// releaseGeneration gives up the generation of a build that failed.
func (b *bulkBuild) releaseGeneration(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	_, err := updateMap(ctx, b.store, nameFromID(b.id), forCollection(b.id, changeIf(
		func(m *Map) bool { return m.Building.reserves(b.generation) }, func(m *Map) { m.release(&m.Building) })))
	if err != nil && !errors.Is(err, collection.ErrUnknown) && b.log != nil {
		b.log.Warn("the objects of a failed build will be deleted after a week",
			"collection", nameFromID(b.id), "error", err)
	}
}

// publishIndex puts the documents of an index into the store, by shards, and makes them the generation that is
// searched.
func (b *bulkBuild) publishIndex(ctx context.Context, ix *index.Index, dir string) (_ *Map, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	// Describe the generation.
	h := snap.Header()
	g := &replica.Generation{
		Number:  b.generation,
		Base:    b.generation,
		Dim:     snap.Dim(),
		Nbits:   h.Nbits,
		Stage:   b.growth.EncodingOf(&h).Stage,
		Model:   h.Model,
		Trained: h.Build.Tokens,
	}
	if collection.Undecided(snap) {
		g.Dim = 0
	}
	// Put the codec.
	o := &index.CopyOptions{Logger: b.log, Force: true}
	if g.Stage != collection.StageFlat {
		codec := filepath.Join(dir, "codec.plaid")
		if _, err := index.Copy(ctx, codec, []index.CopyFrom{{Snapshot: snap, Docs: roaring.New()}}, o); err != nil {
			return nil, err
		}
		if err := b.checkStillReserved(ctx); err != nil {
			return nil, err
		}
		if g.Codec, err = objects.PutFile(ctx, b.store, codecObject(b.id, g.Number), codec); err != nil {
			return nil, err
		}
	}
	// Put the index file of each shard.
	shardDocs := make([]*roaring.Bitmap, len(b.logEnds))
	for s := range shardDocs {
		shardDocs[s] = roaring.New()
	}
	for ordinal := range snap.State().Docs {
		if snap.Live(ordinal) {
			shardDocs[index.HashShard(documentIDOf(snap.ID(ordinal)), len(shardDocs))].Add(ordinal)
		}
	}
	shardPath := filepath.Join(dir, "part.plaid")
	for s, docs := range shardDocs {
		if err := b.putShard(ctx, s, g.Number, index.CopyFrom{Snapshot: snap, Docs: docs}, shardPath); err != nil {
			return nil, fmt.Errorf("shard %d: %w", s, err)
		}
		if b.progress != nil {
			b.progress(s+1, len(shardDocs))
		}
	}
	// Search the new generation.
	return b.changeMap(ctx, func(m *Map) error {
		if err := b.checkReserved(m); err != nil {
			return err
		}
		m.Building = nil
		m.promote(g)
		return nil
	})
}

// checkReserved returns [ErrConflict] if the map does not have the reservation of the build any more.
func (b *bulkBuild) checkReserved(m *Map) error {
	if m.Building.reserves(b.generation) {
		return nil
	}
	return fmt.Errorf("%w: another build of %q was begun, or this one was given up after %v",
		ErrConflict, m.Name, buildGrace)
}

// checkStillReserved returns an error if the build has lost its generation. Its objects may have been deleted already
// then, and objects that are put later would never be deleted.
func (b *bulkBuild) checkStillReserved(ctx context.Context) error {
	_, err := b.changeMap(ctx, func(m *Map) error { return cmp.Or(b.checkReserved(m), errUnchanged) })
	return err
}

// putShard puts the index file of a shard. The file says that it has all entries of the log up to the beginning of the
// build, whose changes the new documents replace.
func (b *bulkBuild) putShard(ctx context.Context, shard int, generation uint64, from index.CopyFrom,
	path string) (err error) {
	o := &index.CopyOptions{Logger: b.log, Force: true}
	if _, err := index.Copy(ctx, path, []index.CopyFrom{from}, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	end := b.logEnds[shard]
	if end.Number > 0 {
		ix, err := index.Open(ctx, path, &index.Options{Write: true})
		if err != nil {
			return err
		}
		if err := errors.Join(ix.Entry(end.Number).WithMark(end.Hash).Skip(ctx), ix.Close()); err != nil {
			return err
		}
	}
	if err := b.checkStillReserved(ctx); err != nil {
		return err
	}
	log := journal.New(b.store, b.id, shard, journal.Options{})
	_, err = objects.PutFile(ctx, b.store, log.CheckpointName(generation, end), path)
	return err
}
