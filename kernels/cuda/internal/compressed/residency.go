package compressed

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// ensureResident uploads the documents of a snapshot that are not on the device yet. The
// documents of a lineage are identified by their ordinals, regardless of chunks:
//
//  1. New documents are appended to those on the device.
//  2. The tokens of a deleted document may stay on the device: the live set keeps searches
//     from returning it.
//  3. If an old document of the snapshot is not on the device, as in a snapshot older than
//     the upload, or if most of the documents on the device are deleted, everything is uploaded again.
func (a *attachment) ensureResident(
	ctx context.Context, c kernels.Corpus, progress func(done, total int64),
) (err error) {
	if a.freed {
		return kernels.ErrDeviceClosed
	}
	live, _ := c.LiveSet()
	sameLineage := a.shape != nil && a.lineage == c.Lineage()
	if sameLineage && len(live) > 0 && a.residentLive == &live[0] {
		return nil
	}
	sameLineage = sameLineage && a.hasDocuments(c)
	if sameLineage && documentCount(c) < len(a.firstTile) {
		a.setResidentLive(live)
		return nil
	}
	defer func() {
		if err != nil { // half an index is useless; the next search uploads everything
			a.rt.Drain()
			a.freeIndex()
		}
	}()
	if !sameLineage {
		a.freeIndex()
		if err := a.uploadCodec(c); err != nil {
			return err
		}
		a.lineage = c.Lineage()
	}
	if err := a.measureTiles(c); err != nil {
		return err
	}
	docs, tiles := a.docsAndTiles()
	plan := a.newPlan(docs, tiles)
	if !plan.Resident && a.resident != nil { // it may fit without the deleted documents
		if err := a.remeasureTiles(c); err != nil {
			return err
		}
		docs, tiles = a.docsAndTiles()
		plan = a.newPlan(docs, tiles)
	}
	if plan.Resident {
		err = a.extendResident(ctx, c, &plan, progress)
	} else {
		err = a.prepareStreaming(&plan)
	}
	if err != nil {
		return err
	}
	a.setResidentLive(live)
	a.mu.Lock()
	a.plan = plan
	a.mu.Unlock()
	return nil
}

// setResidentLive records that all documents of the snapshot with this live set are on the
// device. The pointer keeps the set alive, so that no other set can get the same address.
func (a *attachment) setResidentLive(live []uint64) {
	a.residentLive = nil
	if len(live) > 0 {
		a.residentLive = &live[0]
	}
}

// hasDocuments reports whether the old documents of a snapshot are on the device, and make up
// at least half of the tiles there.
func (a *attachment) hasDocuments(c kernels.Corpus) bool {
	knownDocs := len(a.firstTile) - 1
	kept := uint64(0)
	for i := range c.Chunks() {
		first, off := c.ChunkDocs(i)
		for d := range min(len(off)-1, knownDocs-int(first)) {
			if off[d] == off[d+1] {
				continue
			}
			tiles := runtime.CeilDiv(off[d+1]-off[d], tileTokens)
			if doc := int(first) + d; a.firstTile[doc+1]-a.firstTile[doc] != tiles {
				return false
			}
			kept += uint64(tiles)
		}
	}
	return 2*kept >= uint64(a.firstTile[min(knownDocs, documentCount(c))])
}

// remeasureTiles frees the resident arrays, and rebuilds the table of tiles for a snapshot.
func (a *attachment) remeasureTiles(c kernels.Corpus) error {
	if a.resident != nil {
		a.resident.freeArrays(a.rt.Driver)
		a.resident = nil
	}
	a.forgetTiles()
	return a.measureTiles(c)
}

// docsAndTiles returns the number of documents and tiles in the table of tiles.
func (a *attachment) docsAndTiles() (docs, tiles int64) {
	n := len(a.firstTile) - 1
	return int64(n), int64(a.firstTile[n])
}

// measureTiles appends the documents of a snapshot that are not in the table of tiles.
func (a *attachment) measureTiles(c kernels.Corpus) error {
	if a.firstTile == nil {
		a.firstTile = []uint32{0}
	}
	known := len(a.firstTile) - 1
	for i := range c.Chunks() {
		first, off := c.ChunkDocs(i)
		for d := max(known-int(first), 0); d < len(off)-1; d++ {
			n := int64(off[d+1] - off[d])
			a.maxTokens = max(a.maxTokens, n)
			a.maxTiles = max(a.maxTiles, runtime.CeilDiv(n, tileTokens))
			a.tokens += n
			tile := uint64(a.firstTile[len(a.firstTile)-1]) + uint64(runtime.CeilDiv(n, tileTokens))
			if tile > 1<<32-1-spareTiles || len(a.firstTile) > maxDocs {
				return fmt.Errorf("%w: more than %d tokens or %d documents", driver.ErrUnsupported,
					uint64(1)<<32*tileTokens, maxDocs)
			}
			a.firstTile = append(a.firstTile, uint32(tile))
		}
	}
	return nil
}

// extendResident makes the resident arrays large enough and uploads the documents that
// are not in them. Arrays that are too small are copied to larger ones on the
// device; if both do not fit at the same time, all documents are uploaded again.
func (a *attachment) extendResident(
	ctx context.Context, c kernels.Corpus, plan *kernels.MemoryPlan, progress func(done, total int64),
) error {
	dev, st := a.rt.Driver, a.rt.Stream
	docs, tiles := a.docsAndTiles()
	if a.resident != nil && a.resident.tileCap >= tiles && a.resident.docCap >= docs {
		return a.upload(ctx, c, progress)
	}
	old := a.resident
	docCap, tileCap := docs, tiles
	if old != nil { // an index that has grown will probably grow again
		docCap, tileCap = docs+docs/8, min(tiles+tiles/8, 1<<32-1-spareTiles)
	}
	grown, err := a.shape.newPacked(dev, docCap, tileCap)
	if err != nil && old != nil && errors.Is(err, driver.ErrOutOfMemory) {
		// This snapshot may have fewer tiles than the old arrays: those of deleted documents
		// are not uploaded again.
		if err := a.remeasureTiles(c); err != nil {
			return err
		}
		old = nil
		docs, tiles = a.docsAndTiles()
		*plan = a.newPlan(docs, tiles)
		grown, err = a.shape.newPacked(dev, docs, tiles)
	}
	if err != nil {
		return fmt.Errorf("index of %d documents: %w", docs, err)
	}
	a.resident = grown
	if old == nil {
		if err := dev.Set(grown.firstTile.Ptr, 0, 4, st); err != nil {
			return err
		}
		return a.upload(ctx, c, progress)
	}
	defer old.freeArrays(dev)
	bytes := a.shape.packedBytes(old.docs, old.tiles-spareTiles) // upload clears the spare tiles
	for i, m := range []struct{ dst, src driver.Mem }{
		{grown.words, old.words},
		{grown.rows, old.rows},
		{grown.codes, old.codes},
		{grown.tileDoc, old.tileDoc},
		{grown.firstTile, old.firstTile},
		{grown.docMax, old.docMax},
	} {
		if err := dev.OnDevice(m.dst.Ptr, m.src.Ptr, bytes[i], st); err != nil {
			return err
		}
	}
	grown.docs, grown.tiles = old.docs, old.tiles
	if err := a.rt.Sync(); err != nil {
		return err
	}
	return a.upload(ctx, c, progress)
}

// upload copies the documents that are not in the resident arrays to the device, and appends them.
func (a *attachment) upload(ctx context.Context, c kernels.Corpus, progress func(done, total int64)) error {
	cut := pieceCutter{limit: a.maxPieceTokens()}
	cut.addCorpus(c, a.resident.docs)
	total, done := int64(0), int64(0)
	for i := range cut.pieces {
		total += cut.pieces[i].tokens
	}
	if err := a.rt.ReserveStaging(min(a.maxStageBytes(), a.largestStage(cut.pieces))); err != nil {
		return err
	}
	for i := range cut.pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := &cut.pieces[i]
		st, err := a.stagePiece(c, p, uint32(a.resident.tiles))
		if err != nil {
			return err
		}
		if err := a.packPiece(st, p, a.resident); err != nil {
			return err
		}
		if err := a.rt.Unstage(st.Staged); err != nil {
			return err
		}
		done += p.tokens
		if progress != nil {
			progress(done, total)
		}
	}
	if len(cut.pieces) == 0 {
		if err := a.shape.clearSpare(a.rt, a.resident); err != nil {
			return err
		}
	}
	return a.rt.Sync()
}
