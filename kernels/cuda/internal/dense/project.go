package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// projector is a kernel that makes token vectors of hidden states.
type projector struct {
	name          string
	block, shared int
	columns       int  // dimensions of a block
	packs         bool // it writes rows as dense_pack does
	rows          int  // of a block, of dense_project_any; 0 means that blocks take tiles in turn
}

// Shared memory of the kernels of src/dense/head.cuh, besides weights.
const (
	headTeams   = 4
	headStages  = 3
	headRows    = headStages * headTeams * 64 * 128
	headTokens  = 32
	headQuery   = headTokens*16 + 16 // of 4 dimensions
	headMaxima  = headTeams * 8 * 32 * 4
	headColumns = 128 // dimensions of a block, at most
	headRing    = 3   // chunks of weights, at most where they do not stay
	headOthers  = 96  // barriers
)

// headShared is the shared memory of a kernel for rows of some length, with as many of
// the weights as there is room for. It reports false where there is too little.
func headShared(limit, columns, rowBytes int, scores bool) (int, bool) {
	fixed, column := headRows+8*columns+headOthers, 128*columns
	if scores {
		fixed += columns/4*headQuery + headMaxima
	}
	n := min(runtime.CeilDiv(rowBytes, 128), (limit-fixed)/column)
	return fixed + n*column, n >= min(headRing, runtime.CeilDiv(rowBytes, 128))
}

// chooseProjector picks the kernel for hidden states of a format, which is that of the weights too if fast.
func chooseProjector(arch string, shared int, f format, fast bool, rowBytes, dim int) projector {
	k := projector{
		name:    "dense/dense_project_any",
		block:   128,
		columns: 32,
		rows:    64,
	}
	if !fast || arch != "90a" || f != f16 && f != bf16 && f != split {
		return k
	}
	columns := min(max(runtime.CeilDiv(dim, 32)*32, 64), headColumns)
	bytes, ok := headShared(shared, columns, rowBytes, false)
	if !ok {
		return k
	}
	return projector{
		name:    fmt.Sprintf("dense/dense_project_%s_n%d", f.kernelName(), columns),
		block:   128 * headTeams,
		shared:  bytes,
		columns: columns,
		packs:   dim <= columns,
	}
}

// gridFor is that for n rows.
func (k *projector) gridFor(rt *runtime.Runtime, n, dim int) (along, across int, err error) {
	across = runtime.CeilDiv(dim, k.columns)
	if k.rows > 0 {
		return runtime.CeilDiv(n, k.rows), across, nil
	}
	blocks, err := rt.FillingBlocks(k.name, k.block, k.shared)
	return min(runtime.CeilDiv(n, 64*k.block/128), max(blocks/across, 1)), across, err
}

// headFormats chooses how hidden states lie, which are best in a format, and the weights. It reports
// whether the two fit the kernels of sm_90a. Hidden states that are held stay as they are.
func headFormats(hidden format, held bool, weights *maxsim.Matrix) (h, w format, fast bool) {
	w, fast = operandFormats(hidden, weights)
	if fast && w == hidden && (hidden == f16 || hidden == bf16 || hidden == split) {
		return hidden, w, true
	}
	if held {
		return hidden, w, false
	}
	return split, split, true
}

// fusedKernel is the kernel that scores the token vectors that it makes, for one short query. It reports
// false where there is none for the format of hidden states.
func (k *projector) fusedKernel(rt *runtime.Runtime, s *shape, hidden packedRows) (fused kernel, ok bool, err error) {
	if !k.packs || !s.all || s.queryCount != 1 || s.longest > headTokens || s.queries.format != split {
		return fused, false, nil
	}
	shared, ok := headShared(rt.Props.Shared, k.columns, hidden.rowBytes, true)
	if !ok {
		return fused, false, nil
	}
	fused = kernel{
		name:   fmt.Sprintf("dense/dense_head_%s_n%d", hidden.format.kernelName(), k.columns),
		block:  128 * headTeams,
		shared: shared,
		tokens: headTokens,
		groups: 1,
		teams:  headTeams,
	}
	blocks, err := rt.FillingBlocks(fused.name, fused.block, fused.shared)
	fused.slots = blocks * fused.teams
	return fused, err == nil, err
}

// layoutBlocks is how many blocks of columns the weights are laid out in, and in how many chunks of 128
// bytes of a row.
func (k *projector) layoutBlocks(dim, rowBytes int) (across, chunks int) {
	return runtime.CeilDiv(dim, k.columns), runtime.CeilDiv(rowBytes, 128)
}

// reserveLayout takes room for the weights as the kernel reads them; −1 means that it needs none.
func (k *projector) reserveLayout(a *runtime.Arena, dim, rowBytes int) int64 {
	if k.rows > 0 {
		return -1
	}
	across, chunks := k.layoutBlocks(dim, rowBytes)
	return a.Append(int64(across) * int64(chunks) * 128 * int64(k.columns))
}

// layWeights lays the weights out at an address, where the kernel reads them from.
func (k *projector) layWeights(rt *runtime.Runtime, p *denseProjectParams, out driver.Ptr) error {
	_, chunks := k.layoutBlocks(int(p.dim), int(p.rowBytes))
	lay := &densePackParams{ // bytes, two at a time
		in: p.weights, rows: out, n: p.dim, dim: p.weightBytes / 2, source: uint32(f16), format: uint32(f16),
		rowBytes: uint32(128 * chunks), columns: uint32(k.columns),
	}
	p.weights = out
	return lay.run(rt)
}

// projectParams are those of a kernel for hidden states and weights as they lie: without addresses of
// hidden states and results.
func projectParams(hidden, weights packedRows, hiddenDim, dim int) *denseProjectParams {
	return &denseProjectParams{
		weights:      weights.ptr,
		weightScale:  weights.scale,
		dim:          uint32(dim),
		hiddenDim:    uint32(hiddenDim),
		rowBytes:     uint32(hidden.rowBytes),
		weightBytes:  uint32(weights.rowBytes),
		hiddenFormat: uint32(hidden.format),
		weightFormat: uint32(weights.format),
	}
}

// run makes the token vectors of n hidden states: by way of p.out, if the kernel does not pack.
func (k *projector) run(rt *runtime.Runtime, p *denseProjectParams, hidden packedRows, n int, to packedRows) error {
	p.hidden, p.hiddenScale, p.rows = hidden.ptr, hidden.scale, uint32(n)
	if k.packs {
		p.rowsOut, p.outBytes, p.scale, p.unit = to.ptr, uint32(to.rowBytes), to.scale, to.unit
	}
	along, across, err := k.gridFor(rt, n, int(p.dim))
	if err != nil {
		return err
	}
	if err := runtime.Launch(rt, k.name, along, across, 1, k.block, k.shared, p); err != nil || k.packs {
		return err
	}
	pack := &densePackParams{
		in:       p.out,
		rows:     to.ptr,
		scale:    to.scale,
		unit:     to.unit,
		inverse:  to.inverse,
		n:        uint32(n),
		dim:      p.dim,
		source:   uint32(f32),
		format:   uint32(to.format),
		rowBytes: uint32(to.rowBytes),
	}
	return pack.run(rt)
}

// headParams are those of a kernel that scores the token vectors that it makes of hidden states.
func headParams(head *denseProjectParams, score *denseParams, hidden packedRows, normalize bool) *denseHeadParams {
	p := &denseHeadParams{head: *head, score: *score}
	p.head.hidden, p.head.hiddenScale = hidden.ptr, hidden.scale
	if normalize {
		p.normalize = 1
	}
	return p
}
