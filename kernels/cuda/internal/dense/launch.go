package dense

import "github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"

// The launches of kernels that run before and after the scoring kernels.

// blocks returns the grid of dense_pack.
func (p *densePackParams) blocks() int {
	n := int(p.n)
	if columns := int(p.columns); columns > 0 {
		n = runtime.CeilDiv(n, columns) * columns
	}
	return runtime.CeilDiv(n, 8)
}

// run packs rows, or computes their lengths.
func (p *densePackParams) run(rt *runtime.Runtime) error {
	return runtime.Launch(rt, "dense/dense_pack", p.blocks(), 1, 1, 256, 0, p)
}

// blocks returns the grid of dense_weights.
func (p *denseWeightsParams) blocks() int { return int(runtime.CeilDiv(p.n, 256)) }

// run computes the weights of query rows.
func (p *denseWeightsParams) run(rt *runtime.Runtime) error {
	return runtime.Launch(rt, "dense/dense_weights", p.blocks(), 1, 1, 256, 0, p)
}

// blocks returns the grid of dense_fill.
func (p *denseFillParams) blocks() int {
	threads := max(32*int64(p.nItems)+32*int64(p.nUnits), int64(p.nGroups)+int64(p.nJoins))
	return int(runtime.CeilDiv(threads, 256))
}

// run adds up the groups of n queries with up to maxDocs documents each.
func (p *denseSumParams) run(rt *runtime.Runtime, n, maxDocs int) error {
	return runtime.Launch(rt, "dense/dense_sum", n, runtime.CeilDiv(maxDocs, 256), 1, 256, 0, p)
}

// run computes the scores of n pairs from the maxima of their segments.
func (p *denseJoinParams) run(rt *runtime.Runtime, n int) error {
	return runtime.Launch(rt, "dense/dense_join", n, 1, 1, 1024, 0, p)
}
