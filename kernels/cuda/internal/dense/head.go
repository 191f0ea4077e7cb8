package dense

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// ScoreHead implements [maxsim.Heads]. For one short query a kernel scores the token
// vectors that it makes. For others they are made of hidden states a piece at a time, in
// rows that are scored while they are in the cache: once for all queries.
func (b *backend) ScoreHead(ctx context.Context, c *maxsim.HeadCall) error {
	w, err := c.Check()
	if err != nil {
		return err
	}
	if w.Pairs == 0 {
		return nil
	}
	s, err := b.newScoring(&maxsim.Call{Q: c.Q, D: c.D, Pairs: c.Pairs, Terms: c.Terms, Scores: c.Scores}, w)
	if err != nil {
		return err
	}
	s.head = &head{Head: c.Head}
	return b.submit(ctx, "scoring", s.run)
}

// head makes token vectors of hidden states.
type head struct {
	maxsim.Head
	layWeights, layHidden func(driver.Ptr) rows
	weights, hidden       rows
	bias, out, laid       int64 // places in the scratch memory
	kernel                projector
	params                *denseProjectParams
	fused                 bool // a kernel scores what it makes: documents are hidden states
	score                 denseHeadParams
}

// projector is a kernel that makes token vectors.
type projector struct {
	name          string
	block, shared int
	columns       int  // dimensions of a block
	packs         bool // it writes rows as dense_pack does
	rows          int  // of a block, of dense_project_any; 0: it takes tiles in turn
}

// What the kernels of src/dense/head.cuh have in shared memory beside weights.
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
// the weights as there is room for; false: there is too little.
func headShared(most, columns, rowBytes int, scores bool) (int, bool) {
	fixed, one := headRows+8*columns+headOthers, 128*columns
	if scores {
		fixed += columns/4*headQuery + headMaxima
	}
	n := min(runtime.CeilDiv(rowBytes, 128), (most-fixed)/one)
	return fixed + n*one, n >= min(headRing, runtime.CeilDiv(rowBytes, 128))
}

// project picks the kernel for hidden states and weights of a format, which is the same
// where fast.
func project(arch string, shared int, f format, fast bool, rowBytes, dim int) projector {
	k := projector{name: "dense/dense_project_any", block: 128, columns: 32, rows: 64}
	if !fast || arch != "90a" || f != f16 && f != bf16 && f != split {
		return k
	}
	columns := min(max(runtime.CeilDiv(dim, 32)*32, 64), headColumns)
	bytes, ok := headShared(shared, columns, rowBytes, false)
	if !ok {
		return k
	}
	return projector{
		name:  fmt.Sprintf("dense/dense_project_%s_n%d", f.name(), columns),
		block: 128 * headTeams, shared: bytes, columns: columns, packs: dim <= columns,
	}
}

// grid is that for n rows.
func (k *projector) grid(rt *runtime.Runtime, n, dim int) (along, across int, err error) {
	across = runtime.CeilDiv(dim, k.columns)
	if k.rows > 0 {
		return runtime.CeilDiv(n, k.rows), across, nil
	}
	blocks, err := rt.FillingBlocks(k.name, k.block, k.shared)
	return min(runtime.CeilDiv(n, 64*k.block/128), max(blocks/across, 1)), across, err
}

// choose chooses the formats and the kernels. Where one query is all that hidden states
// are for, and a product takes it, they are scored as they are read.
func (h *head) choose(s *scoring) error {
	dim := s.size.D.Dim
	f := s.d.format()
	wf, fast := beside(f, &h.Weights)
	if fast = fast && wf == f && (f == f16 || f == bf16 || f == split); !fast && s.d.held == nil {
		f, wf, fast = split, split, true
	}
	h.hidden, h.weights = rows{format: f, rowBytes: rowBytes(f, dim)}, rows{format: wf, rowBytes: rowBytes(wf, dim)}
	props := &s.rt.Props
	h.kernel = project(s.rt.Arch(), props.Shared, f, fast, h.hidden.rowBytes, s.size.Q.Dim)
	once := s.shape.all && s.shape.queryCount == 1 && s.shape.longest <= headTokens && s.segment == 0
	if !once || !h.kernel.packs || s.shape.queries.format != split {
		return nil
	}
	bytes, ok := headShared(props.Shared, h.kernel.columns, h.hidden.rowBytes, true)
	if !ok {
		return nil
	}
	k := kernel{
		name:  fmt.Sprintf("dense/dense_head_%s_n%d", f.name(), h.kernel.columns),
		block: 128 * headTeams, shared: bytes, tokens: headTokens, groups: 1, teams: headTeams,
	}
	blocks, err := s.rt.FillingBlocks(k.name, k.block, k.shared)
	if err != nil {
		return err
	}
	k.slots = blocks * k.teams
	s.kernel, h.fused = k, true
	return nil
}

// lay takes room for the weights, and for most rows at a time.
func (h *head) lay(a *runtime.Arena, s *scoring, most int) {
	h.layWeights = layBatch(a, h.weights.format, maxsim.Single(h.Weights), h.Weights.Rows(), false)
	if s.d.batch != nil {
		h.layHidden = layBatch(a, h.hidden.format, s.d.batch, most, false)
	}
	h.bias = a.Take(4 * int64(len(h.Bias)))
	if k := &h.kernel; k.rows == 0 {
		across, chunks := h.blocks(s)
		h.laid = a.Take(int64(across) * int64(chunks) * 128 * int64(k.columns))
	}
	if h.fused {
		s.layD = h.layHidden
		return
	}
	s.layD = layRows(a, s.shape.docs.format, s.size.Q.Dim, most, true, s.call.Normalize)
	if !h.kernel.packs {
		h.out = a.Take(4 * int64(most) * int64(s.size.Q.Dim))
	}
}

// blocks is how many blocks of columns there are, and chunks of 128 bytes of a row.
func (h *head) blocks(s *scoring) (across, chunks int) {
	return runtime.CeilDiv(s.size.Q.Dim, h.kernel.columns), runtime.CeilDiv(h.hidden.rowBytes, 128)
}

// begin brings the weights to the device.
func (h *head) begin(ctx context.Context, s *scoring) error {
	rt, w := s.rt, &s.rt.Work
	h.weights = h.layWeights(w.Scratch.Ptr)
	if h.layHidden != nil {
		h.hidden = h.layHidden(w.Scratch.Ptr)
	} else {
		h.hidden = s.d.held.rows
	}
	b := maxsim.Single(h.Weights)
	if err := upload(ctx, rt, b, newTokens(b.Shape()), h.weights, 0, h.Weights.Rows()); err != nil {
		return err
	}
	_, chunks := h.blocks(s)
	p := &denseProjectParams{
		weights: h.weights.rows, weightScale: h.weights.scale, dim: uint32(s.size.Q.Dim), rowBytes: uint32(h.hidden.rowBytes), weightBytes: uint32(h.weights.rowBytes),
		hiddenFormat: uint32(h.hidden.format), weightFormat: uint32(h.weights.format), hiddenDim: uint32(s.size.D.Dim),
	}
	if h.kernel.rows == 0 {
		lay := &densePackParams{ // bytes, two at a time
			in: p.weights, rows: w.Scratch.At(h.laid), n: p.dim, dim: p.weightBytes / 2, source: uint32(f16), format: uint32(f16),
			rowBytes: uint32(128 * chunks), columns: uint32(h.kernel.columns),
		}
		if err := runtime.Launch(rt, "dense/dense_pack", lay.blocks(), 1, 1, 256, 0, lay); err != nil {
			return err
		}
		p.weights = lay.rows
	}
	switch {
	case h.fused:
	case h.kernel.packs:
		p.rowsOut, p.outBytes = s.dRows.rows, uint32(s.dRows.rowBytes)
		p.scale, p.unit = s.dRows.scale, s.dRows.unit
	default:
		p.out = w.Scratch.At(h.out)
	}
	h.params = p
	if h.Bias == nil {
		return nil
	}
	p.bias = w.Scratch.At(h.bias)
	// Not page-locked: it has been read when the call returns.
	return rt.Driver.ToDevice(p.bias, runtime.Bytes(h.Bias), rt.Stream)
}

// bring makes the token vectors of the documents lo to hi.
func (h *head) bring(ctx context.Context, s *scoring, lo, hi int) error {
	first, n := s.d.first[lo], s.d.first[hi]-s.d.first[lo]
	if n == 0 {
		return nil
	}
	hidden := h.hidden
	if s.d.held != nil {
		hidden = hidden.from(first)
	} else if err := upload(ctx, s.rt, s.d.batch, s.d.tokens, hidden, first, first+n); err != nil {
		return err
	}
	p, k := h.params, &h.kernel
	p.hidden, p.hiddenScale, p.rows = hidden.rows, hidden.scale, uint32(n)
	along, across, err := k.grid(s.rt, n, int(p.dim))
	if err != nil {
		return err
	}
	if err := runtime.Launch(s.rt, k.name, along, across, 1, k.block, k.shared, p); err != nil || k.packs {
		return err
	}
	to := s.dRows
	return runtime.Launch(s.rt, "dense/dense_pack", runtime.CeilDiv(n, 8), 1, 1, 256, 0, &densePackParams{
		in: p.out, rows: to.rows, scale: to.scale, unit: to.unit, inverse: to.inverse,
		n: uint32(n), dim: p.dim, source: uint32(f32), format: uint32(to.format), rowBytes: uint32(to.rowBytes),
	})
}

// launch scores the hidden states that are there.
func (h *head) launch(s *scoring) error {
	h.score = denseHeadParams{head: *h.params, score: *s.params}
	h.score.head.hidden, h.score.head.hiddenScale = s.dRows.rows, s.dRows.scale
	if s.call.Normalize {
		h.score.normalize = 1
	}
	k := &s.kernel
	return runtime.Launch(s.rt, k.name, len(s.buf.units)/k.teams, 1, 1, k.block, k.shared, &h.score)
}
