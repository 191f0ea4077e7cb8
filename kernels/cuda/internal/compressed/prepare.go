package compressed

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

type prepParams struct {
	query, weights, alike, dimScale, frags, cols, bound, parts, unit, zeros, clock driver.Ptr
	dim, mode, nbits, laneWords, fragStride, zeroWords                             uint32
	step, sMax, sLeast, factorMax, tableScale, centroidUp                          float32
	staged, _                                                                      uint32
}

type centroidParams struct {
	centroids, parts, unit, cols, invScale, sRows, sFloat, clock driver.Ptr
	k, halfRows, laneDims, side                                  uint32
}

// mostStaged is for how many bytes of a block's query tokens there is shared memory.
const mostStaged = 32 << 10

// prepare makes the operands of the scan from the queries: S and the rest.
func (b *batch) prepare(probing bool) error {
	s, a := b.shape, b.attachment
	staged, shared := uint32(0), 32*s.dim
	if shared <= mostStaged {
		staged = 1
	} else {
		shared = 0
	}
	err := runtime.Launch(b.rt, "prep_query", 4, b.groups, 1, 512, shared, &prepParams{
		query: b.inAt(b.in.query), weights: b.inAt(b.in.weights), alike: b.inAt(b.in.alike), dimScale: a.array(a.at.dimScale),
		frags: b.tmpAt(b.tmp.frags), cols: b.tmpAt(b.tmp.cols), bound: b.tmpAt(b.tmp.bound),
		parts: b.tmpAt(b.tmp.parts), unit: b.tmpAt(b.tmp.unit), zeros: b.outAt(0), clock: b.clock(atStart),
		dim: uint32(s.dim), mode: uint32(s.mode), nbits: uint32(s.nbits), laneWords: uint32(s.lanes), fragStride: uint32(s.fragStride),
		zeroWords: uint32(b.out.ids / 4), step: s.step, sMax: s.sMax, sLeast: s.sLeast, factorMax: s.factorMax, tableScale: s.tableScale, centroidUp: s.centroidUp, staged: staged,
	})
	if err != nil {
		return err
	}
	p := &centroidParams{
		centroids: a.array(a.at.centroids), parts: b.tmpAt(b.tmp.parts), unit: b.tmpAt(b.tmp.unit), cols: b.tmpAt(b.tmp.cols), invScale: a.array(a.at.invScale),
		sRows: b.tmpAt(b.tmp.sRows), clock: b.clock(atPrepared), k: uint32(s.k), laneDims: uint32(s.laneDims()), side: uint32(b.side),
	}
	if s.mode > halfMode {
		p.halfRows = 1
	}
	if probing {
		p.sFloat = b.tmpAt(b.tmp.sFloat)
	}
	return follow(b, "centroid_scores", runtime.CeilDiv(s.k, 128), b.groups, 1, 256, 0, p)
}
