package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/storage"
)

// Compact writes the index without its deleted documents, with its segments merged into one, and
// replaces the old file by the new one. Ordinals stay, so each deleted document leaves an empty
// entry of a few bytes. Snapshots taken before keep the old file until they are closed.
func (ix *Index) Compact(ctx context.Context, progress func(Progress)) error {
	if err := ix.writeLock.lock(ctx); err != nil {
		return err
	}
	defer ix.writeLock.unlock()
	return ix.compact(ctx, DefaultMemory, progress)
}

// compact is Compact for a caller that holds the write lock.
func (ix *Index) compact(ctx context.Context, memory int64, progress func(Progress)) error {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	return ix.afterChange(ix.file.Replace(func(dst *storage.File) error {
		return copyLiveDocuments(ctx, dst, snap, memory, progress)
	}))
}

// compactAfterBuild frees the space of the replaced index, if that is worth it. The build is
// committed by then, so a failure is only logged and reported.
func (ix *Index) compactAfterBuild(ctx context.Context, memory int64) (notFreed error) {
	err := ix.compactIfSparse(ctx, memory)
	if err != nil {
		ix.log.Warn("the index is complete, but the space of the previous one was not freed",
			"index", ix.Path(), "error", err)
	}
	return err
}

// compactIfSparse compacts if the file is more than 1.1 times as large as its content.
func (ix *Index) compactIfSparse(ctx context.Context, memory int64) error {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	_, sizes, err := snap.Inspect(ctx)
	pages, pagesErr := snap.Pages()
	err = errors.Join(err, pagesErr, snap.Close())
	if err == nil && 10*pages.Size > 11*sizes.Total() {
		err = ix.compact(ctx, memory, nil)
	}
	return errors.Join(err, ix.setCurrent(nil)) // release the state that ix.Snapshot built
}

// copyLiveDocuments copies the live documents of snap, and the counters and notes of the index,
// into dst.
func copyLiveDocuments(
	ctx context.Context, dst *storage.File, snap *Snapshot, memory int64, progress func(Progress),
) (err error) {
	defer storage.Guard(snap.Path(), &err)()
	gen, err := putEmptyGeneration(dst, snap.Header(), snap.Codec(), snap.Cutoffs())
	if err != nil {
		return err
	}
	oldState := snap.State()
	stager := newStager(dst, gen, snap.Header().Centroids, storage.State{}, memory)
	for i := range snap.Chunks() {
		if err := stager.copyChunk(ctx, snap, i, otherFile); err != nil {
			return err
		}
		reportProgress(progress, Progress{"compact", int64(stager.state.Docs), int64(oldState.Docs), "documents"})
	}
	return stager.commit(ctx, func(tx *storage.Tx, g *storage.Generation, s *storage.State) error {
		s.Live, s.LiveTokens, s.Clamped = oldState.Live, oldState.LiveTokens, oldState.Clamped
		s.PayloadUpdates = oldState.PayloadUpdates
		s.AddedTokens, s.AddedSumSq = oldState.AddedTokens, oldState.AddedSumSq
		if s.LiveTokens != s.Tokens {
			return fmt.Errorf("%w: %d live tokens copied, %d expected", storage.ErrCorrupt, s.Tokens, s.LiveTokens)
		}
		stager.docSets.Deleted = snap.Tombstones()
		built, err := readBuilt(snap.fileSnapshot)
		if err == nil && built != nil {
			err = tx.PutNote(noteBuilt, built)
		}
		return errors.Join(err, copyDefaults(tx, gen, snap), copyApplied(tx, gen, snap), tx.MakeCurrent(gen))
	})
}

// copyTarget distinguishes a copy within a file, which has the ids and payloads already, from a
// copy into another one, which needs them.
type copyTarget bool

const (
	sameFile  copyTarget = false
	otherFile copyTarget = true
)

// copyChunk stages the documents of chunk i again; deleted ones become holes.
func (s *stager) copyChunk(ctx context.Context, snap *Snapshot, i int, target copyTarget) error {
	ch, err := snap.Chunk(i, storage.All)
	if err != nil {
		return err
	}
	first, _ := snap.ChunkDocs(i)
	for d := range ch.Docs() {
		ordinal := first + uint32(d)
		if !snap.Live(ordinal) {
			if err := s.appendHole(ctx); err != nil {
				return err
			}
			continue
		}
		var payload []byte
		if target == otherFile {
			if payload, err = snap.Payload(ordinal); err != nil {
				return err
			}
		}
		doc := encoded{
			id:            snap.ID(ordinal),
			payload:       payload,
			alreadyStored: target == sameFile,
			tokens:        chunkTokens(ch, d, snap.Codec()),
		}
		if snap.Passages().Contains(ordinal) {
			doc.parent, _ = snap.PassageOf(ordinal)
		}
		if err := s.appendDocument(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}
