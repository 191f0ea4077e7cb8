package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// projector is a kernel that computes token vectors from hidden states.
type projector struct {
	name          string
	block, shared int
	columns       int  // dimensions of a block
	packs         bool // it writes packed rows, as dense_pack does
	rows          int  // rows of a block of dense_project_any, 0 means that blocks process tiles in turn
}

// Sizes of the kernels of src/dense/head.cuh: counts, and bytes of shared memory besides weights.
const (
	headTeams   = 4
	headStages  = 3
	headRows    = headStages * headTeams * 64 * 128
	headTokens  = 32
	headQuery   = headTokens*16 + 16 // bytes of four dimensions of the query
	headMaxima  = headTeams * 8 * 32 * 4
	headColumns = 128 // maximum of dimensions of a block
	headRing    = 3   // minimum of chunks of weights in shared memory, if not all fit
	headOthers  = 96  // bytes of barriers
)

// headShared returns the shared memory of a kernel for rows of rowBytes, up to limit, with as many of
// the weights as fit. It returns false if too few fit.
func headShared(limit, columns, rowBytes int, scores bool) (int, bool) {
	fixed, column := headRows+8*columns+headOthers, 128*columns
	if scores {
		fixed += columns/4*headQuery + headMaxima
	}
	n := min(runtime.CeilDiv(rowBytes, 128), (limit-fixed)/column)
	return fixed + n*column, n >= min(headRing, runtime.CeilDiv(rowBytes, 128))
}

// chooseProjector picks the kernel for hidden states in a format. fast means that the weights have the
// same format.
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

// gridFor returns the grid for n rows.
func (k *projector) gridFor(rt *runtime.Runtime, n, dim int) (along, across int, err error) {
	across = runtime.CeilDiv(dim, k.columns)
	if k.rows > 0 {
		return runtime.CeilDiv(n, k.rows), across, nil
	}
	blocks, err := rt.FillingBlocks(k.name, k.block, k.shared)
	return min(runtime.CeilDiv(n, 64*k.block/128), max(blocks/across, 1)), across, err
}

// headFormats chooses the formats of hidden states, whose natural format is hidden, and of the weights. It
// reports whether the kernels of sm_90a support the two. Hidden states that are held keep their format.
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

// fusedKernel returns the kernel that computes token vectors and scores them for one short query. It
// returns false if no such kernel supports the call.
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

// layoutBlocks returns how the weights are laid out: in how many blocks of columns, and in how many
// chunks of 128 bytes of a row.
func (k *projector) layoutBlocks(dim, rowBytes int) (across, chunks int) {
	return runtime.CeilDiv(dim, k.columns), runtime.CeilDiv(rowBytes, 128)
}

// reserveLayout reserves memory for the weights in the layout of the kernel; −1 means that the kernel
// reads them as they are.
func (k *projector) reserveLayout(a *runtime.Arena, dim, rowBytes int) int64 {
	if k.rows > 0 {
		return -1
	}
	across, chunks := k.layoutBlocks(dim, rowBytes)
	return a.Append(int64(across) * int64(chunks) * 128 * int64(k.columns))
}

// layWeights copies the weights to an address, in the layout of the kernel.
func (k *projector) layWeights(rt *runtime.Runtime, p *denseProjectParams, out driver.Ptr) error {
	_, chunks := k.layoutBlocks(int(p.dim), int(p.rowBytes))
	lay := &densePackParams{ // bytes, two at a time
		in: p.weights, rows: out, n: p.dim, dim: p.weightBytes / 2, source: uint32(f16), format: uint32(f16),
		rowBytes: uint32(128 * chunks), columns: uint32(k.columns),
	}
	p.weights = out
	return lay.run(rt)
}

// projectParams returns the parameters of a projector for the formats of hidden states and weights,
// without the addresses of hidden states and results.
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

// run launches the kernels that compute the token vectors of n hidden states. If the projector does not
// pack, it writes float32 to p.out, which dense_pack reads.
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

// headParams returns the parameters of a fused kernel.
func headParams(head *denseProjectParams, score *denseParams, hidden packedRows, normalize bool) *denseHeadParams {
	p := &denseHeadParams{head: *head, score: *score}
	p.head.hidden, p.head.hiddenScale = hidden.ptr, hidden.scale
	if normalize {
		p.normalize = 1
	}
	return p
}
