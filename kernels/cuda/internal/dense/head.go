package dense

import (
	"context"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// ScoreHead implements [maxsim.HeadScorer]. For one short query, one kernel computes token
// vectors and scores them. Otherwise token vectors are computed from hidden states piece by
// piece, once for all queries, and scored while they are in the cache.
func (b *backend) ScoreHead(ctx context.Context, c *maxsim.HeadCall) error {
	w, err := c.Check()
	if err != nil {
		return err
	}
	if w.Pairs == 0 {
		return nil
	}
	s, err := b.newScoring(&maxsim.Call{
		Q:      c.Q,
		D:      c.D,
		Pairs:  c.Pairs,
		Terms:  c.Terms,
		Scores: c.Scores,
	}, w)
	if err != nil {
		return err
	}
	s.head = &head{Head: c.Head}
	return b.submit(ctx, "scoring", s.run)
}

// head computes token vectors from hidden states.
type head struct {
	maxsim.Head
	placeWeights, placeHidden           func(driver.Ptr) packedRows
	weights, hidden                     packedRows
	biasOffset, outOffset, layoutOffset int64 // in the scratch memory
	kernel                              projector
	params                              *denseProjectParams
	fused                               bool // one kernel computes and scores: documents are hidden states
}

// chooseKernel chooses the formats and the kernels: the fused one for a single short query, if
// it supports the formats.
func (h *head) chooseKernel(s *scoring) error {
	dim, rt := s.size.D.Dim, s.rt
	f, wf, fast := headFormats(s.d.format(), s.d.held != nil, &h.Weights)
	h.hidden, h.weights = rowsOf(f, dim), rowsOf(wf, dim)
	h.kernel = chooseProjector(rt.Arch(), rt.Props.Shared, f, fast, h.hidden.rowBytes, s.size.Q.Dim)
	if s.segment > 0 {
		return nil
	}
	k, ok, err := h.kernel.fusedKernel(rt, &s.shape, h.hidden)
	if ok {
		s.kernel, h.fused = k, true
	}
	return err
}

// reserve reserves memory for the weights, and for up to maxRows rows.
func (h *head) reserve(a *runtime.Arena, s *scoring, maxRows int) {
	h.placeWeights = reserveBatch(a, h.weights.format, maxsim.Single(h.Weights), h.Weights.Rows(), false)
	if s.d.batch != nil {
		h.placeHidden = reserveBatch(a, h.hidden.format, s.d.batch, maxRows, false)
	}
	h.biasOffset = a.Append(4 * int64(len(h.Bias)))
	h.layoutOffset = h.kernel.reserveLayout(a, s.size.Q.Dim, h.hidden.rowBytes)
	if h.fused {
		s.placeDocs = h.placeHidden
		return
	}
	s.placeDocs = reserveRows(a, s.shape.docs.format, s.size.Q.Dim, maxRows, true, s.call.Normalize)
	if !h.kernel.packs {
		h.outOffset = a.Append(4 * int64(maxRows) * int64(s.size.Q.Dim))
	}
}

// uploadWeights copies the weights and the bias to the device.
func (h *head) uploadWeights(ctx context.Context, s *scoring) error {
	rt, w := s.rt, &s.rt.Work
	h.weights = h.placeWeights(w.Scratch.Ptr)
	if h.placeHidden != nil {
		h.hidden = h.placeHidden(w.Scratch.Ptr)
	} else {
		h.hidden = s.d.held.rows
	}
	b := maxsim.Single(h.Weights)
	if err := upload(ctx, rt, b, newTokens(b.Shape()), h.weights, 0, h.Weights.Rows()); err != nil {
		return err
	}
	p := projectParams(h.hidden, h.weights, s.size.D.Dim, s.size.Q.Dim)
	if h.layoutOffset >= 0 {
		if err := h.kernel.layWeights(rt, p, w.Scratch.At(h.layoutOffset)); err != nil {
			return err
		}
	}
	if !h.kernel.packs {
		p.out = w.Scratch.At(h.outOffset)
	}
	h.params = p
	if h.Bias == nil {
		return nil
	}
	p.bias = w.Scratch.At(h.biasOffset)
	// Not page-locked: it has been read when the call returns.
	return rt.Driver.ToDevice(p.bias, runtime.Bytes(h.Bias), rt.Stream)
}

// computeTokens launches the kernels that compute the token vectors of the documents lo to hi.
func (h *head) computeTokens(ctx context.Context, s *scoring, lo, hi int) error {
	first, n := s.d.first[lo], s.d.first[hi]-s.d.first[lo]
	if n == 0 {
		return nil
	}
	hidden := h.hidden
	if s.d.held != nil {
		hidden = hidden.startingAt(first)
	} else if err := upload(ctx, s.rt, s.d.batch, s.d.tokens, hidden, first, first+n); err != nil {
		return err
	}
	return h.kernel.run(s.rt, h.params, hidden, n, s.dRows)
}

// launch launches the fused kernel on the uploaded hidden states.
func (h *head) launch(s *scoring) error {
	k := &s.kernel
	return runtime.Launch(s.rt, k.name, len(s.work.units)/k.teams, 1, 1, k.block, k.shared,
		headParams(h.params, s.params, s.dRows, s.call.Normalize))
}
