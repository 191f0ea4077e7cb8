package compressed

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

type fineParams struct {
	words, rows, firstTile, centroids, weightsTable, dimScale, centroidRatio driver.Ptr
	query, weights, groupBegin, ids, best, scores                            driver.Ptr
	factorMax, aMax                                                          float32
	n, dim, nbits, laneWords, maxGroups, _                                   uint32
}

// fineBlocks is how many blocks fill a device with fine scores.
const fineBlocks = 4096

// fine scores the k best of each query in float32.
func (b *batch) fine(p *packed) error {
	s, a := b.s, b.a
	if b.k == 0 {
		return nil
	}
	cells := b.queries * b.k
	if err := b.rt.Driver.Set(b.tmpAt(b.tmp.best), 0, 4*int64(cells)*int64(b.most)*columns, b.rt.Stream); err != nil {
		return err
	}
	args := &fineParams{
		words: p.words.Ptr, rows: p.rows.Ptr, firstTile: p.firstTile.Ptr,
		centroids: a.array(a.at.centroids), weightsTable: a.array(a.at.weights), dimScale: a.array(a.at.dimScale), centroidRatio: a.array(a.at.ratio),
		query: b.inAt(b.in.query), weights: b.inAt(b.in.weights), groupBegin: b.inAt(b.in.begin), ids: b.outAt(b.out.ids),
		best: b.tmpAt(b.tmp.best), scores: b.outAt(b.out.fine), factorMax: s.factorMax / s.aMax, aMax: s.aMax,
		n: uint32(b.k), dim: uint32(s.dim), nbits: uint32(s.nbits), laneWords: uint32(s.lanes), maxGroups: uint32(b.most),
	}
	// Enough blocks to fill the device and to share a long document, and not
	// many more than pay for collections in which such are rare.
	splits := max(runtime.CeilDiv(int(a.maxTiles), 16), runtime.CeilDiv(fineBlocks, cells))
	splits = max(min(splits, int(a.maxTiles), 1<<16/cells), 1)
	if err := runtime.Launch(b.rt, "fine", b.k, b.queries, splits, 128, 0, args); err != nil {
		return err
	}
	return runtime.Launch(b.rt, "fine_sum", runtime.CeilDiv(b.k, 8), b.queries, 1, 256, 0, args)
}
