// Package compressed searches compressed tokens on a device: MaxSim over codes
// and residuals.
//
//	Attach     chunks → staging → pack → tiles of 16 tokens, resident
//	Search     checks queries, and queues requests, which share batches
//	batch      prep_query, centroid_scores, [probe], scan, pick, fine
//	order      by fine scores, in the caller's goroutine
//
// The parameter structs of kernels are defined next to their launches. They equal those
// of src/plaid.cuh, which documents their fields; a test of package cuda compares the two.
package compressed

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// newPlan plans the memory for an index of a number of documents and tiles: whether it stays on the
// device or is streamed. It sets maxGroups.
func (a *attachment) newPlan(docs, tiles int64) kernels.MemoryPlan {
	s := a.shape
	bytes := s.packedBytes(docs, tiles)
	stage := 2 * a.maxStageBytes()
	p := kernels.MemoryPlan{
		Tokens:    a.tokens,
		Slots:     tiles * tileTokens,
		Codec:     a.arrays.size,
		Words:     bytes[0],
		Residuals: bytes[1],
		Tables:    bytes[2] + bytes[3] + bytes[4] + bytes[5] + docs/8,
		Staging:   stage,
		Query:     s.workspaceBytes(docs),
		Limit:     a.memoryLimit,
		Resident:  true,
		Pieces:    1,
	}
	if a.alwaysStream || p.Index()+stage+2*p.Query > a.memoryLimit {
		p.Resident = false
		cut := pieceCutter{limit: a.maxPieceTokens()}
		p.Pieces = int(runtime.CeilDiv(max(a.tokens, 1), cut.limit))
	}
	if !p.Resident {
		pieceDocuments, _ := a.maxPieceSize()
		p.Query = s.workspaceBytes(pieceDocuments)
	}
	workspace := min(a.memoryLimit/workspaceShare, a.memoryLimit-p.Staging-p.Codec)
	if p.Resident {
		workspace = min(workspace, a.memoryLimit-p.Index()-p.Staging)
	}
	a.maxGroups = int(min(max(workspace/p.Query, 1), maxBatchGroups))
	return p
}

// maxPieceTokens returns the maximum of tokens of a piece; a longer document is a piece of its own.
func (a *attachment) maxPieceTokens() int64 {
	return max(min(a.pieceBytes, a.memoryLimit/16)/int64(a.shape.codeBytes+2+a.shape.rowBytes+2), 1)
}

// maxStageBytes returns the bytes of staging for the largest piece.
func (a *attachment) maxStageBytes() int64 {
	tokens := min(max(a.maxPieceTokens(), a.maxTokens), max(a.tokens, 1))
	docs := min(int64(len(a.firstTile)-1), a.maxPieceTokens(), maxPieceDocs)
	return a.shape.stageLayout(docs, tokens).size
}

// workspaceBytes returns the workspace of one group of query tokens for a scan of docs documents,
// without the arrays whose size depends on the number of results.
func (s *shape) workspaceBytes(docs int64) int64 {
	return 4*int64(s.fragStride) + s.partsBytes() + columns*(16+16+16+8+4*int64(s.dim)) + 64*int64(s.k) + 4*docs + 1<<20
}

// largestStage returns the bytes of staging for the largest of some pieces.
func (a *attachment) largestStage(pieces []piece) (bytes int64) {
	for i := range pieces {
		bytes = max(bytes, a.shape.stageLayout(pieces[i].docs, pieces[i].tokens).size)
	}
	return bytes
}

// prepareStreaming reserves the memory for streaming: staging for two pieces as they are stored,
// and one piece in the layout of the scans.
func (a *attachment) prepareStreaming(p *kernels.MemoryPlan) error {
	stage := a.maxStageBytes()
	docs, tiles := a.maxPieceSize()
	bytes := a.shape.packedBytes(docs, tiles)
	need := p.Codec + 2*stage + a.shape.workspaceBytes(docs)
	for _, n := range bytes {
		need += n
	}
	if need > a.memoryLimit {
		return fmt.Errorf("%w: streaming needs %d bytes, the limit is %d", driver.ErrOutOfMemory, need, a.memoryLimit)
	}
	if a.streamPiece != nil && (a.streamPiece.tileCap < tiles || a.streamPiece.docCap < docs) {
		a.streamPiece.freeArrays(a.rt.Driver)
		a.streamPiece = nil
	}
	if a.streamPiece == nil {
		part, err := a.shape.newPacked(a.rt.Driver, docs, tiles)
		if err != nil {
			return fmt.Errorf("streaming: %w", err)
		}
		a.streamPiece = part
	}
	return a.rt.ReserveStaging(stage)
}

// maxPieceSize returns upper bounds of the documents and tiles of a piece.
func (a *attachment) maxPieceSize() (docs, tiles int64) {
	n, allTiles := a.docsAndTiles()
	tokens := max(a.maxPieceTokens(), a.maxTokens)
	docs = min(n, a.maxPieceTokens(), maxPieceDocs)
	return docs, min(allTiles, runtime.CeilDiv(tokens, tileTokens)+docs)
}

// Constants of src/plaid.cuh and of the kernels.
const (
	tileTokens  = 16
	columns     = 32 // query tokens of a group
	scanThreads = 128
	wideThreads = 512 // of scans that score four groups at a time
	spareTiles  = 4   // zero tiles after the last one
	maxTopK     = 4096
	topkBlock   = 8192 // entries that a block of topk_* reduces
	tableMode   = 16
	halfMode    = 32 // + bits: scan_f*, of sm_90a alone
	maxDocs     = 1<<31 - 1
	maxRatio    = 64 // maximum ratio of the scales of centroids for scan_b*

	// halfArch is the architecture whose device code has scan_f*.
	halfArch = "90a"
)

type prepParams struct {
	query, weights, alike, dimScale, frags, cols, bound, parts, unit, zeros, clock driver.Ptr
	dim, mode, nbits, laneWords, fragStride, zeroWords                             uint32
	step, sMax, sLeast, factorMax, tableScale, centroidUp                          float32
	staged, _                                                                      uint32
}

type centroidParams struct {
	centroids, parts, unit, cols, invScale, sRows, sFloat, maxima, clock driver.Ptr
	k, halfRows, laneDims, side                                          uint32
}

// maxStagedBytes is the shared memory that a block may use for its query tokens, in bytes.
const maxStagedBytes = 32 << 10

// prepareQueries computes the operands of the scan from the queries: the scores of all centroids,
// and the coefficients of the residuals.
func (b *batch) prepareQueries(probing bool) error {
	s, a := b.shape, b.attachment
	staged, shared := uint32(0), 32*s.dim
	if shared <= maxStagedBytes {
		staged = 1
	} else {
		shared = 0
	}
	err := runtime.Launch(b.rt, "prep_query", 4, b.groups, 1, 512, shared, &prepParams{
		query:      b.inputPtr(b.in.query),
		weights:    b.inputPtr(b.in.weights),
		alike:      b.inputPtr(b.in.alike),
		dimScale:   a.codecArray(a.arrays.dimScale),
		frags:      b.scratchPtr(b.tmp.frags),
		cols:       b.scratchPtr(b.tmp.cols),
		bound:      b.scratchPtr(b.tmp.bound),
		parts:      b.scratchPtr(b.tmp.parts),
		unit:       b.scratchPtr(b.tmp.unit),
		zeros:      b.outputPtr(0),
		clock:      b.clockAt(clockStart),
		dim:        uint32(s.dim),
		mode:       uint32(s.mode),
		nbits:      uint32(s.nbits),
		laneWords:  uint32(s.lanes),
		fragStride: uint32(s.fragStride),
		zeroWords:  uint32(b.out.ids / 4),
		step:       s.step,
		sMax:       s.sMax,
		sLeast:     s.sLeast,
		factorMax:  s.factorMax,
		tableScale: s.tableScale,
		centroidUp: s.centroidUp,
		staged:     staged,
	})
	if err != nil {
		return err
	}
	p := &centroidParams{
		centroids: a.codecArray(a.arrays.centroids),
		parts:     b.scratchPtr(b.tmp.parts),
		unit:      b.scratchPtr(b.tmp.unit),
		cols:      b.scratchPtr(b.tmp.cols),
		invScale:  a.codecArray(a.arrays.invScale),
		sRows:     b.scratchPtr(b.tmp.sRows),
		clock:     b.clockAt(clockPrepared),
		k:         uint32(s.k),
		laneDims:  uint32(s.laneDims()),
		side:      uint32(b.sideBySide),
	}
	if s.mode > halfMode {
		p.halfRows = 1
	}
	if probing {
		p.sFloat = b.scratchPtr(b.tmp.sFloat)
		if b.picksByMaxima() {
			p.maxima = b.scratchPtr(b.tmp.maxima)
		}
	}
	return launchChained(b, "centroid_scores", runtime.CeilDiv(s.k, 128), b.groups, 1, 256, 0, p)
}
