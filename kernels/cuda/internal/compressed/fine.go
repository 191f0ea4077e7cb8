package compressed

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

type fineParams struct {
	words, rows, firstTile, centroids, table, centroidRatio, parts, unit driver.Ptr
	groupBegin, ids, coarse, found, part, count, scores, clock           driver.Ptr
	out, host, done                                                      driver.Ptr
	factorMax, aMax                                                      float32
	capacity, laneWords, maxGroups, outWords                             uint32
}

const (
	fineThreads = 128
	// fineBlocks is how many blocks of fine scores there are to be at least, and
	// fineTiles how many tiles one takes where documents are long.
	fineBlocks, fineTiles = 512, 32
	// mostFineParts bounds the memory for documents that are shared by blocks.
	mostFineParts = 1 << 16
	// fineShared is the shared memory of a block, for the operands of the query;
	// where there are scan_f*, fineAhead more for centroids on their way.
	fineShared, fineAhead = 32 << 10, 16 << 10
)

// shares is how many blocks share a document's tiles: enough to fill the device
// and for long documents, and not many more than pay for collections in which
// such are rare.
func (b *batch) shares() int {
	cells := b.queries * b.room
	if b.each {
		cells = b.room
	}
	n := max(runtime.CeilDiv(int(b.attachment.maxTiles), fineTiles), runtime.CeilDiv(fineBlocks, cells))
	return max(min(n, int(b.attachment.maxTiles), mostFineParts/(cells*b.most)), 1)
}

// fineDocs is how many documents of a query a block takes at most where others
// fill the device, so that the operands of the query are not loaded for each.
const fineDocs = 16

// fineGrid is how many blocks the documents of a query have.
func (b *batch) fineGrid() int {
	return min(b.room, max(runtime.CeilDiv(b.room, fineDocs), runtime.CeilDiv(8*fineBlocks, b.queries)))
}

// fine scores the documents that are listed. coarse says that pick has listed
// them, with their scores.
func (b *batch) fine(p *packed, coarse bool) error {
	s, a := b.shape, b.attachment
	args := &fineParams{
		words: p.words.Ptr, rows: p.rows.Ptr, firstTile: p.firstTile.Ptr,
		centroids: a.array(a.at.centroids), table: a.array(a.at.fineTable), centroidRatio: a.array(a.at.ratio),
		parts: b.tmpAt(b.tmp.parts), unit: b.tmpAt(b.tmp.unit), groupBegin: b.beginAt(),
		ids: b.outAt(b.out.ids), found: b.outAt(b.out.found), part: b.tmpAt(b.tmp.fineParts),
		count: b.rt.Work.Zeroed.At(b.zeroed), scores: b.outAt(b.out.fine), clock: b.clock(atPicked),
		factorMax: s.factorMax / s.aMax, aMax: s.aMax,
		capacity: uint32(b.room), laneWords: uint32(s.lanes), maxGroups: uint32(b.most),
	}
	if b.direct {
		args.out, args.host, args.outWords = b.outAt(0), b.rt.Work.AtHostOut(0), uint32(b.out.coarse/16)
		args.done = b.rt.Work.Zeroed.At(b.zeroed + 4*int64(b.queries)*int64(b.room))
	}
	if coarse {
		args.coarse = b.outAt(b.out.coarse)
	}
	kind := "b"
	if s.mode == tableMode {
		kind = "t"
	}
	shared := fineShared
	if b.rt.Arch() == halfArch {
		shared += fineAhead
	}
	return follow(b, fmt.Sprintf("fine_%s%d", kind, s.nbits), b.fineGrid(), b.queries, b.shares(), fineThreads, shared, args)
}
