package compressed

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

type prepParams struct {
	query, weights, dimScale, frags, cols, bound, split driver.Ptr
	dim, mode, nbits, laneWords, fragStride             uint32
	step, sMax, factorMax                               float32
}

type centroidParams struct {
	centroids, split, cols, invScale, sRows, sFloat driver.Ptr
	k, dim, halfRows, _                             uint32
}

// prepare makes the operands of the scan from the queries: S and the rest.
func (b *batch) prepare(probing bool) error {
	s, a := b.s, b.a
	err := runtime.Launch(b.rt, "prep_query", 4, b.groups, 1, 256, 0, &prepParams{
		query: b.inAt(b.in.query), weights: b.inAt(b.in.weights), dimScale: a.array(a.at.dimScale),
		frags: b.tmpAt(b.tmp.frags), cols: b.tmpAt(b.tmp.cols), bound: b.outAt(b.out.bound), split: b.tmpAt(b.tmp.split),
		dim: uint32(s.dim), mode: uint32(s.mode), nbits: uint32(s.nbits), laneWords: uint32(s.lanes), fragStride: uint32(s.fragStride),
		step: s.step, sMax: s.sMax, factorMax: s.factorMax,
	})
	if err != nil {
		return err
	}
	p := &centroidParams{
		centroids: a.array(a.at.centroids), split: b.tmpAt(b.tmp.split), cols: b.tmpAt(b.tmp.cols), invScale: a.array(a.at.invScale),
		sRows: b.tmpAt(b.tmp.sRows), k: uint32(s.k), dim: uint32(s.dim),
	}
	if s.mode > halfMode {
		p.halfRows = 1
	}
	if probing {
		p.sFloat = b.tmpAt(b.tmp.sFloat)
	}
	if err := runtime.Launch(b.rt, "centroid_scores", runtime.CeilDiv(s.k, 128), b.groups, 1, 256, 0, p); err != nil {
		return err
	}
	return b.rt.Mark(atCentroids)
}
