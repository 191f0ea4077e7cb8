package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/storage"
)

// Compact writes the index without its deleted documents, with its segments
// merged into one, and puts the new file in the place of the old. Ordinals
// stay, so the places of deleted documents remain as empty entries of a few
// bytes. Snapshots taken before keep the old file until they are closed.
func (ix *Index) Compact(ctx context.Context, progress func(Progress)) error {
	if err := ix.write.begin(ctx); err != nil {
		return err
	}
	defer ix.write.end()
	return ix.compact(ctx, DefaultMemory, progress)
}

func (ix *Index) compact(ctx context.Context, memory int64, progress func(Progress)) error {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	return ix.changed(ix.file.Replace(func(dst *storage.File) error {
		return copyLive(ctx, dst, snap, memory, progress)
	}))
}

// shrink compacts after a build if more than a tenth of the file is unused. The
// build is committed by then, so that a fault is no more than worth a word.
func (ix *Index) shrink(ctx context.Context, memory int64) (notFreed error) {
	err := ix.compactLoose(ctx, memory)
	if err != nil {
		ix.log.Warn("the index is complete, but the space of the one before it was not freed", "index", ix.Path(), "error", err)
	}
	return err
}

func (ix *Index) compactLoose(ctx context.Context, memory int64) error {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	_, sizes, err := snap.Inspect(ctx)
	pages, perr := snap.Pages()
	err = errors.Join(err, perr, snap.Close())
	if err == nil && 10*pages.Size > 11*sizes.Total() {
		err = ix.compact(ctx, memory, nil)
	}
	return errors.Join(err, ix.show(nil))
}

func copyLive(ctx context.Context, dst *storage.File, snap *Snapshot, memory int64, progress func(Progress)) (err error) {
	defer storage.Guard(snap.Path(), &err)()
	gen, err := putGeneration(dst, snap.Header(), snap.Codec(), snap.Cutoffs())
	if err != nil {
		return err
	}
	old := snap.State()
	stage := newStager(dst, gen, snap.Header().Centroids, storage.State{}, memory)
	for i := range snap.Chunks() {
		if err := stage.copyChunk(ctx, snap, i, true); err != nil {
			return err
		}
		tell(progress, Progress{"compact", int64(stage.state.Docs), int64(old.Docs), "documents"})
	}
	return stage.commit(ctx, func(tx *storage.Tx, g *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens, s.Clamped, s.PayloadUpdates = old.Live, old.LiveTokens, old.Clamped, old.PayloadUpdates
		s.AddedTokens, s.AddedSumSq = old.AddedTokens, old.AddedSumSq
		if s.LiveTokens != s.Tokens {
			return fmt.Errorf("%w: %d live tokens copied, %d expected", storage.ErrCorrupt, s.Tokens, s.LiveTokens)
		}
		stage.sets.Deleted = snap.Tombstones()
		built, err := builtOf(snap.view)
		if err == nil && built != nil {
			err = tx.PutNote(noteBuilt, built)
		}
		return errors.Join(err, copyDefaults(tx, gen, snap), copyApplied(tx, gen, snap), tx.MakeCurrent(gen))
	})
}

// copyChunk stages the documents of one chunk again; deleted ones become
// holes. whole tells to bring ids and payloads along, as another file needs.
func (s *stager) copyChunk(ctx context.Context, snap *Snapshot, i int, whole bool) error {
	ch, err := snap.Chunk(i, storage.All)
	if err != nil {
		return err
	}
	first, _ := snap.ChunkDocs(i)
	for d := range ch.Docs() {
		ordinal := first + uint32(d)
		if !snap.Live(ordinal) {
			if err := s.stageHole(ctx); err != nil {
				return err
			}
			continue
		}
		var payload []byte
		if whole {
			if payload, err = snap.Payload(ordinal); err != nil {
				return err
			}
		}
		doc := encoded{id: snap.ID(ordinal), payload: payload, again: !whole, tokens: tokensOfChunk(ch, d, snap.Codec())}
		if snap.Passages().Contains(ordinal) {
			doc.parent, _ = snap.PassageOf(ordinal)
		}
		if err := s.stage(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}
