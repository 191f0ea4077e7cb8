package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// HeadCall is a computation of the scores of hidden states, as [maxsim.HeadCall]: D has the hidden
// states x, whose token vectors are Head · x + Bias.
type HeadCall struct {
	Place        Place
	Q, D         Batch
	Pairs        PairList
	QueryWeights uint64 // float32 [Q.Rows]; absent means 1
	Normalize    bool   // divide the computed token vectors by their lengths
	Head         uint64 // [Q.Dim][D.Dim]
	HeadType     maxsim.Type
	Bias         uint64 // float32 [Q.Dim], or 0
	Scores       uint64 // out, float32 [pairs]
}

// headKey has the properties of a head that a plan depends on.
type headKey struct{ hidden, weights batchKey }

// headPlan says how token vectors are computed from hidden states in the workspace.
type headPlan struct {
	kernel          projector
	hidden, weights rowsPlan
	outOffset       int64
	fused           bool // one kernel computes token vectors and scores them
}

// matrix returns the weights as a batch of one item.
func (c *HeadCall) matrix() *Batch {
	return &Batch{
		Data:    c.Head,
		Type:    c.HeadType,
		Dim:     c.D.Dim,
		Items:   1,
		Rows:    c.Q.Dim,
		Stride:  c.Q.Dim,
		Longest: c.Q.Dim,
	}
}

// planKey returns the properties of a head that a plan depends on; c is nil for calls without a head.
func (c *HeadCall) planKey() headKey {
	if c == nil {
		return headKey{}
	}
	return headKey{c.D.planKey(), c.matrix().planKey()}
}

// scoreCall returns the call for the computed token vectors. Its documents look like float32 vectors,
// with a placeholder as address.
func (c *HeadCall) scoreCall() (*ScoreCall, error) {
	if err := c.D.checkOperand("documents"); err != nil {
		return nil, err
	}
	if err := c.matrix().checkOperand("head"); err != nil {
		return nil, err
	}
	if c.HeadType > maxsim.BF16 {
		return nil, fmt.Errorf("%w: a head of type %s; want float32, float16 or bfloat16", driver.ErrUnsupported,
			c.HeadType)
	}
	if c.Bias%4 != 0 {
		return nil, fmt.Errorf("%w: biases at %#x are not aligned to an element", kernels.ErrShape, c.Bias)
	}
	tokens := c.D
	tokens.Type, tokens.Dim, tokens.Scales, tokens.Zeros, tokens.Data = maxsim.F32, c.Q.Dim, 0, 0, runtime.ArenaAlign
	return &ScoreCall{
		Place:     c.Place,
		Q:         c.Q,
		D:         tokens,
		Pairs:     c.Pairs,
		Weights:   c.QueryWeights,
		Normalize: c.Normalize,
		Scores:    c.Scores,
		head:      c,
	}, nil
}

// ScoreHead puts the work of a call into its stream. Errors are those of Score.
func (d *Device) ScoreHead(c *HeadCall) error {
	s, err := c.scoreCall()
	if err != nil {
		return err
	}
	return d.Score(s)
}

// ScoreHeadWorkspace returns how many bytes of workspace the call needs.
func (d *Device) ScoreHeadWorkspace(c *HeadCall) (int64, error) {
	s, err := c.scoreCall()
	if err != nil {
		return 0, err
	}
	return d.ScoreWorkspace(s)
}

// chooseHead chooses the kernel that computes token vectors, or, for one short query, the fused one that
// scores them as well.
func (d *Device) chooseHead(p *scorePlan, c *ScoreCall, s *shape) error {
	rt, h, w := d.rt, &c.head.D, c.head.matrix()
	f, wf, fast := headFormats(naturalFormat(h.matrix()), false, w.matrix())
	x := &headPlan{kernel: chooseProjector(rt.Arch(), rt.Props.Shared, f, fast, rowBytes(f, h.Dim), c.Q.Dim)}
	plain := x.kernel.rows > 0
	x.hidden, x.weights = h.planRows(f, plain, false), w.planRows(wf, plain, false)
	if !plain {
		x.weights.packInColumns(x.kernel.columns)
	}
	p.head = x
	p.d = rowsPlan{
		format:   split,
		rowBytes: rowBytes(split, c.Q.Dim),
		pack:     true,
		prepared: true,
	}
	if p.segments > 1 {
		return nil
	}
	k, ok, err := x.kernel.fusedKernel(rt, s, packedRows{format: f, rowBytes: x.hidden.rowBytes})
	if !ok {
		return err
	}
	p.kernel, x.fused = k, true
	p.q = c.Q.planRows(s.queries.format, false, false)
	p.d.prepared, p.d.rowBytes = x.hidden.prepared, x.hidden.rowBytes
	return nil
}

// reserve reserves memory for n rows at a time.
func (h *headPlan) reserve(a *runtime.Arena, c *ScoreCall, n int) {
	if h.hidden.prepared {
		h.hidden.reserve(a, &c.head.D, n, false)
	}
	if h.weights.prepared {
		h.weights.reserve(a, c.head.matrix(), c.Q.Dim, false)
	}
	if !h.kernel.packs {
		h.outOffset = a.Append(4 * int64(n) * int64(c.Q.Dim))
	}
}

// headPackParams sets the parameters of the projector, and returns those of the kernel that packs the
// weights of the head, or nil if the weights are read as they are.
func (s *scoreLaunch) headPackParams() *densePackParams {
	h, c := s.plan.head, &s.call
	w, packing := h.weights.packParams(c.head.matrix(), s.base, 0, c.Q.Dim)
	s.head = projectParams(packedRows{format: h.hidden.format, rowBytes: h.hidden.rowBytes}, w, c.head.D.Dim, c.Q.Dim)
	s.head.bias = driver.Ptr(c.head.Bias)
	if !h.kernel.packs {
		s.head.out = s.base.Add(h.outOffset)
	}
	return packing
}

// computeTokens computes the token vectors of n rows from row first on, and returns them. For a fused
// kernel it returns the packed hidden states.
func (s *scoreLaunch) computeTokens(first, n int) (packedRows, error) {
	h, c, rt := s.plan.head, &s.call, s.d.rt
	hidden, err := s.packRows(&h.hidden, &c.head.D, first, n)
	if err != nil || h.fused {
		return hidden, err
	}
	s.early = false
	to := packedRows{
		format:   split,
		rowBytes: s.plan.d.rowBytes,
		ptr:      s.base.Add(s.plan.d.rowsOffset),
		scale:    s.base.Add(s.plan.d.scaleOffsets[0]),
	}
	if c.Normalize {
		to.unit = s.base.Add(s.plan.d.scaleOffsets[1])
	}
	return to, h.kernel.run(rt, s.head, hidden, n, to)
}
