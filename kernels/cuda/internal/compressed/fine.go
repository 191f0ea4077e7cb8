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
	// maxFineParts bounds the memory for documents that are shared by blocks.
	maxFineParts = 1 << 16
	// fineShared is the shared memory of a block, for the operands of the query;
	// where there are scan_f*, fineAhead more for centroids on their way.
	fineShared, fineAhead = 32 << 10, 16 << 10
)

// blocksPerDocument is how many blocks share a document's tiles: enough to fill the device
// and for long documents, and not many more than pay for collections in which
// such are rare.
func (b *batch) blocksPerDocument() int {
	cells := b.queries * b.capacity
	if b.fineSeparately {
		cells = b.capacity
	}
	n := max(runtime.CeilDiv(int(b.attachment.maxTiles), fineTiles), runtime.CeilDiv(fineBlocks, cells))
	return max(min(n, int(b.attachment.maxTiles), maxFineParts/(cells*b.maxGroups)), 1)
}

// fineDocs is how many documents of a query a block takes at most where others
// fill the device, so that the operands of the query are not loaded for each.
const fineDocs = 16

// fineBlocksPerQuery is how many blocks the documents of a query have.
func (b *batch) fineBlocksPerQuery() int {
	return min(b.capacity, max(runtime.CeilDiv(b.capacity, fineDocs), runtime.CeilDiv(8*fineBlocks, b.queries)))
}

// fineScores scores the documents that are listed. coarse says that pick has listed
// them, with their scores.
func (b *batch) fineScores(p *packed, withCoarse bool) error {
	s, a := b.shape, b.attachment
	args := &fineParams{
		words:         p.words.Ptr,
		rows:          p.rows.Ptr,
		firstTile:     p.firstTile.Ptr,
		centroids:     a.codecArray(a.arrays.centroids),
		table:         a.codecArray(a.arrays.fineTable),
		centroidRatio: a.codecArray(a.arrays.ratio),
		parts:         b.scratchPtr(b.tmp.parts),
		unit:          b.scratchPtr(b.tmp.unit),
		groupBegin:    b.groupBeginPtr(),
		ids:           b.outputPtr(b.out.ids),
		found:         b.outputPtr(b.out.found),
		part:          b.scratchPtr(b.tmp.fineParts),
		count:         b.rt.Work.Zeroed.At(b.zeroed),
		scores:        b.outputPtr(b.out.fine),
		clock:         b.clockAt(clockPicked),
		factorMax:     s.factorMax / s.maxCentroidScale,
		aMax:          s.maxCentroidScale,
		capacity:      uint32(b.capacity),
		laneWords:     uint32(s.lanes),
		maxGroups:     uint32(b.maxGroups),
	}
	if b.direct {
		args.out, args.host, args.outWords = b.outputPtr(0), b.rt.Work.HostOutPtr(0), uint32(b.out.coarse/16)
		args.done = b.rt.Work.Zeroed.At(b.zeroed + 4*int64(b.queries)*int64(b.capacity))
	}
	if withCoarse {
		args.coarse = b.outputPtr(b.out.coarse)
	}
	kind := "b"
	if s.mode == tableMode {
		kind = "t"
	}
	shared := fineShared
	if b.rt.Arch() == halfArch {
		shared += fineAhead
	}
	return launchChained(b, fmt.Sprintf("fine_%s%d", kind, s.nbits), b.fineBlocksPerQuery(), b.queries,
		b.blocksPerDocument(), fineThreads, shared, args)
}
