package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// HeadCall asks for the scores of hidden states, as [maxsim.HeadCall] does: D has these, and their
// token vectors are Head · x + Bias.
type HeadCall struct {
	Place        Place
	Q, D         Batch
	Pairs        PairList
	QueryWeights uint64 // float32 [Q.Rows]; 0: 1
	Normalize    bool   // token vectors of both sides
	Head         uint64 // [Q.Dim][D.Dim]
	HeadType     maxsim.Type
	Bias         uint64 // float32 [Q.Dim], or 0
	Scores       uint64 // out, float32 [pairs]
}

// headKey is what a plan depends on of a head.
type headKey struct {
	there  bool
	hidden batchKey
	head   batchKey
}

// placedHead makes token vectors of hidden states in the workspace.
type placedHead struct {
	kernel          projector
	hidden, weights placed
	laid, out       int64
	fused           bool // a kernel scores what it makes
}

// matrix is the weights as a batch of one item.
func (c *HeadCall) matrix() *Batch {
	return &Batch{Data: c.Head, Type: c.HeadType, Dim: c.D.Dim, Items: 1, Rows: c.Q.Dim, Stride: c.Q.Dim, Longest: c.Q.Dim}
}

func (c *HeadCall) key() headKey {
	if c == nil {
		return headKey{}
	}
	return headKey{true, c.D.key(), c.matrix().key()}
}

// scoreCall is the call of the token vectors, which look as if they were float32 ones.
func (c *HeadCall) scoreCall() (*ScoreCall, error) {
	if err := c.D.check("documents"); err != nil {
		return nil, err
	}
	if err := c.matrix().check("head"); err != nil {
		return nil, err
	}
	if c.HeadType > maxsim.BF16 {
		return nil, fmt.Errorf("%w: a head of type %s; want float32, float16 or bfloat16", driver.ErrUnsupported, c.HeadType)
	}
	if c.Bias%4 != 0 {
		return nil, fmt.Errorf("%w: biases at %#x are not aligned to an element", kernels.ErrShape, c.Bias)
	}
	tokens := c.D
	tokens.Type, tokens.Dim, tokens.Scales, tokens.Zeros, tokens.Data = maxsim.F32, c.Q.Dim, 0, 0, runtime.ArenaAlign
	return &ScoreCall{
		Place: c.Place, Q: c.Q, D: tokens, Pairs: c.Pairs, Weights: c.QueryWeights, Normalize: c.Normalize,
		Scores: c.Scores, head: c,
	}, nil
}

// ScoreHead puts the work of a call into its stream; see Score.
func (d *Device) ScoreHead(c *HeadCall) error {
	s, err := c.scoreCall()
	if err != nil {
		return err
	}
	return d.Score(s)
}

// ScoreHeadWorkspace is how many bytes of workspace the call needs.
func (d *Device) ScoreHeadWorkspace(c *HeadCall) (int64, error) {
	s, err := c.scoreCall()
	if err != nil {
		return 0, err
	}
	return d.ScoreWorkspace(s)
}

// chooseHead chooses the kernel that makes token vectors, and, where one query is all that
// they are for, the one that scores what it makes.
func (d *Device) chooseHead(p *scorePlan, c *ScoreCall, s *shape) error {
	h, w := &c.head.D, c.head.matrix()
	f := natural(h.matrix())
	wf, fast := beside(f, w.matrix())
	if fast = fast && wf == f && (f == f16 || f == bf16 || f == split); !fast {
		f, wf, fast = split, split, true
	}
	x := &placedHead{kernel: project(d.rt.Arch(), d.rt.Props.Shared, f, fast, rowBytes(f, h.Dim), c.Q.Dim)}
	plain := x.kernel.rows > 0
	x.hidden, x.weights = h.place(f, plain, false), w.place(wf, plain, false)
	p.head = x
	p.d = placed{format: split, rowBytes: rowBytes(split, c.Q.Dim), pack: true, prepared: true}
	if !s.all || s.queryCount > 1 || s.longest > headTokens || p.segments > 1 || p.fills() || !x.kernel.packs {
		return nil
	}
	bytes, ok := headShared(d.rt.Props.Shared, x.kernel.columns, x.hidden.rowBytes, true)
	if !ok {
		return nil
	}
	k := kernel{
		name:  fmt.Sprintf("dense/dense_head_%s_n%d", f.name(), x.kernel.columns),
		block: 128 * headTeams, shared: bytes, tokens: headTokens, groups: 1, teams: headTeams,
	}
	blocks, err := d.rt.FillingBlocks(k.name, k.block, k.shared)
	if err != nil {
		return err
	}
	k.slots = blocks * k.teams
	p.kernel, x.fused = k, true
	p.q = c.Q.place(s.queries.format, false, c.Normalize)
	p.d.prepared = x.hidden.prepared
	p.d.rowBytes = x.hidden.rowBytes
	return nil
}

// lay takes room for n rows at a time.
func (h *placedHead) lay(a *runtime.Arena, c *ScoreCall, n int) {
	h.laid, h.out = -1, -1
	if h.hidden.prepared {
		h.hidden.lay(a, &c.head.D, n, false)
	}
	if h.weights.prepared {
		h.weights.lay(a, c.head.matrix(), c.Q.Dim, false)
	}
	if h.kernel.rows == 0 {
		across, chunks := h.blocks(c)
		h.laid = a.Take(int64(across) * int64(chunks) * 128 * int64(h.kernel.columns))
	}
	if !h.kernel.packs {
		h.out = a.Take(4 * int64(n) * int64(c.Q.Dim))
	}
}

// blocks is how many blocks of columns there are, and chunks of 128 bytes of a row.
func (h *placedHead) blocks(c *ScoreCall) (across, chunks int) {
	return runtime.CeilDiv(c.Q.Dim, h.kernel.columns), runtime.CeilDiv(h.hidden.rowBytes, 128)
}

// beginHead brings the weights.
func (s *placedScore) beginHead() error {
	h, c, rt := s.plan.head, s.call, s.d.rt
	w, err := h.weights.bring(rt, c.head.matrix(), s.base, 0, c.Q.Dim)
	if err != nil {
		return err
	}
	s.head = &denseProjectParams{
		weights: w.rows, weightScale: w.scale, bias: driver.Ptr(c.head.Bias), dim: uint32(c.Q.Dim),
		rowBytes:    uint32(h.hidden.rowBytes),
		weightBytes: uint32(w.rowBytes), hiddenFormat: uint32(h.hidden.format), weightFormat: uint32(w.format),
		hiddenDim: uint32(c.head.D.Dim),
	}
	if h.laid < 0 {
		return nil
	}
	across, chunks := h.blocks(c)
	lay := &denseLayParams{weights: w.rows, out: s.base.Add(h.laid), dim: uint32(c.Q.Dim),
		weightBytes: uint32(w.rowBytes), columns: uint32(h.kernel.columns)}
	s.head.weights = lay.out
	return runtime.Launch(rt, "dense/dense_lay", chunks, across, 1, 256, 0, lay)
}

// project makes the token vectors of n rows from a row on. Where a kernel scores what it makes it
// returns the hidden states.
func (s *placedScore) project(first, n int) (rows, error) {
	h, c, rt, p := s.plan.head, s.call, s.d.rt, s.head
	hidden, err := h.hidden.bring(rt, &c.head.D, s.base, first, n)
	if err != nil || h.fused {
		return hidden, err
	}
	to := rows{format: split, rowBytes: s.plan.d.rowBytes, rows: s.base.Add(s.plan.d.rows),
		scale: s.base.Add(s.plan.d.scale[0])}
	if c.Normalize {
		to.unit = s.base.Add(s.plan.d.scale[1])
	}
	p.hidden, p.hiddenScale, p.rows = hidden.rows, hidden.scale, uint32(n)
	if h.kernel.packs {
		p.rowsOut, p.outBytes, p.scale, p.unit = to.rows, uint32(to.rowBytes), to.scale, to.unit
	} else {
		p.out = s.base.Add(h.out)
	}
	along, across, err := h.kernel.grid(rt, n, c.Q.Dim)
	if err != nil {
		return to, err
	}
	if err := runtime.Launch(rt, h.kernel.name, along, across, 1, h.kernel.block, h.kernel.shared,
		p); err != nil || h.kernel.packs {
		return to, err
	}
	return to, runtime.Launch(rt, "dense/dense_pack", runtime.CeilDiv(n, 8), 1, 1, 256, 0, &densePackParams{
		in: p.out, rows: to.rows, scale: to.scale, unit: to.unit,
		n: uint32(n), dim: p.dim, source: uint32(f32), format: uint32(to.format), rowBytes: uint32(to.rowBytes),
	})
}
