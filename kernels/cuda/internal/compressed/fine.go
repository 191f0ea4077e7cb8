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
	// fineBlocks is the minimum of blocks of a launch that fills the device, and
	// fineTiles the number of tiles of a block if documents are long.
	fineBlocks, fineTiles = 512, 32
	// maxFineParts bounds the memory for partial results of documents that several blocks share.
	maxFineParts = 1 << 16
	// fineShared is the shared memory of a block, for the operands of the query.
	// On halfArch it has fineAhead more, for centroids that are being loaded.
	fineShared, fineAhead = 32 << 10, 16 << 10
)

// blocksPerDocument returns how many blocks share a document's tiles: enough to fill the device
// and to divide long documents, but bounded, since most blocks have nothing to do if long
// documents are rare.
func (b *batch) blocksPerDocument() int {
	cells := b.queries * b.capacity
	if b.fineSeparately {
		cells = b.capacity
	}
	n := max(runtime.CeilDiv(int(b.attachment.maxTiles), fineTiles), runtime.CeilDiv(fineBlocks, cells))
	return max(min(n, int(b.attachment.maxTiles), maxFineParts/(cells*b.maxGroups)), 1)
}

// fineDocs is the maximum of documents that a block scores one after another if other blocks
// fill the device. The block loads the operands of the query once for all of them.
const fineDocs = 16

// fineBlocksPerQuery returns how many blocks share the documents of a query.
func (b *batch) fineBlocksPerQuery() int {
	return min(b.capacity, max(runtime.CeilDiv(b.capacity, fineDocs), runtime.CeilDiv(8*fineBlocks, b.queries)))
}

// fineScores computes the fine scores of the listed documents. withCoarse means that pick has stored
// their scores of the scan, which are compared with the fine scores.
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
