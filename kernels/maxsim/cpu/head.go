package cpu

import (
	"context"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// head computes token vectors from hidden states, a block at a time. It uses the loop for
// centroid scores with the weights as query tokens, so that a product is one chain of fused
// additions in the order of the hidden dimensions, on all tiers.
type head struct {
	columns tier.QueryVectors
	bias    []float32 // empty for a head without a bias
	weights []float32
}

// headValues is about the number of hidden values of a block.
const headValues = 1 << 16

// ScoreHead implements [maxsim.HeadScorer].
func (b *backend) ScoreHead(ctx context.Context, c *maxsim.HeadCall) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), faultError)
	w, err := c.Check()
	if err != nil {
		return err
	}
	q, d, err := b.operands(c.Q, c.D)
	if err != nil {
		return err
	}
	call := &maxsim.Call{
		Q:      c.Q,
		D:      c.D,
		Pairs:  c.Pairs,
		Terms:  c.Terms,
		Scores: c.Scores,
	}
	return b.scoreChecked(ctx, call, w, q, d, &c.Head)
}

// reset sets the weights, as float32 times their scales, and the bias.
func (h *head) reset(t *tier.Tier, layer *maxsim.Head) {
	m := &layer.Weights
	n := m.Rows()
	h.weights = resize(h.weights, n*m.Dim)
	widenRows(t, m, h.weights, 0, n)
	if m.Scales != nil {
		for i := range h.weights {
			h.weights[i] *= m.Scales[i/m.Dim]
		}
	}
	h.columns.Reset(h.weights, m.Dim)
	h.bias = append(h.bias[:0], layer.Bias...)
}

// outputDim returns the dimension of the token vectors.
func (h *head) outputDim() int { return h.columns.N }

// projectBlock is readBlock with a head: it returns the token vectors of m hidden states.
func (r *rowReader) projectBlock(lo, from, to, m int) (x []float32, factors []float32) {
	t, h := &r.batch.Tokens, r.head
	states := r.floatValues(lo, from, to, m)
	stride, dim := h.columns.Stride, h.outputDim()
	r.products = resize(r.products, m*stride)
	r.lows, r.highs = resize(r.lows, (dim+31)&^31), resize(r.highs, (dim+31)&^31)
	r.tier.Tokens.CentroidScores(r.products, states, m, &h.columns, r.lows, r.highs, nil)
	x = r.products[:m*dim]
	for i := range m {
		row := x[i*dim : (i+1)*dim]
		copy(row, r.products[i*stride:]) // closes the gaps between rows; source and row may overlap
		if t.Scales != nil {
			scale := t.Scales[r.rowOfBlock(lo, from, to, i)]
			for j := range row {
				row[j] *= scale
			}
		}
		for j, v := range h.bias {
			row[j] += v
		}
	}
	if !r.normalize {
		return x, nil
	}
	if r.inverseNorms(x, dim, m) {
		r.normalizeListed(x, dim)
	}
	return x, r.factors
}
