package dense

import "github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"

// The launches of kernels before and after those of scores.

// run packs rows, or computes their lengths.
func (p *densePackParams) run(rt *runtime.Runtime) error {
	return runtime.Launch(rt, "dense/dense_pack", int(runtime.CeilDiv(p.n, 8)), 1, 1, 256, 0, p)
}

// run computes the weights of query rows.
func (p *denseWeightsParams) run(rt *runtime.Runtime) error {
	return runtime.Launch(rt, "dense/dense_weights", int(runtime.CeilDiv(p.n, 256)), 1, 1, 256, 0, p)
}

// run makes the tables of a piece.
func (p *denseFillParams) run(rt *runtime.Runtime) error {
	threads := max(32*int64(p.nItems)+32*int64(p.nUnits), int64(p.nGroups)+int64(p.nJoins))
	return runtime.Launch(rt, "dense/dense_fill", int(runtime.CeilDiv(threads, 256)), 1, 1, 256, 0, p)
}

// run adds up the groups of n queries, each with most documents at most.
func (p *denseSumParams) run(rt *runtime.Runtime, n, most int) error {
	return runtime.Launch(rt, "dense/dense_sum", n, runtime.CeilDiv(most, 256), 1, 256, 0, p)
}

// run finds the scores of n pairs by the maxima of their segments.
func (p *denseJoinParams) run(rt *runtime.Runtime, n int) error {
	return runtime.Launch(rt, "dense/dense_join", n, 1, 1, 1024, 0, p)
}
