package cpu

import (
	"context"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// head makes token vectors of hidden states, a block at a time: the weights are the
// columns of the loop over centroids, so that a product is one chain of fused additions
// in the order of the hidden dimensions, on all tiers.
type head struct {
	columns tier.QueryVectors
	bias    []float32 // empty: none
	wide    []float32
}

// headValues is how many hidden values a block has, about.
const headValues = 1 << 16

// ScoreHead implements [maxsim.Heads].
func (b *backend) ScoreHead(ctx context.Context, c *maxsim.HeadCall) (err error) {
	defer files.RecoverFault(&err, debug.SetPanicOnFault(true), asFault)
	w, err := c.Check()
	if err != nil {
		return err
	}
	q, d, err := b.operands(c.Q, c.D)
	if err != nil {
		return err
	}
	return b.score(ctx, &maxsim.Call{Q: c.Q, D: c.D, Pairs: c.Pairs, Terms: c.Terms, Scores: c.Scores}, w, q, d, &c.Head)
}

func (h *head) reset(t *tier.Tier, given *maxsim.Head) {
	m := &given.Weights
	n := m.Rows()
	h.wide = resize(h.wide, n*m.Dim)
	widen(t, m, h.wide, 0, n)
	if m.Scales != nil {
		for i := range h.wide {
			h.wide[i] *= m.Scales[i/m.Dim]
		}
	}
	h.columns.Reset(h.wide, m.Dim)
	h.bias = append(h.bias[:0], given.Bias...)
}

// dim is that of token vectors.
func (h *head) dim() int { return h.columns.N }

// projected is block for the token vectors that the head makes.
func (r *rows) projected(lo, from, to, m int) (x []float32, factors []float32) {
	t, h := &r.batch.Tokens, r.head
	states := r.values(lo, from, to, m)
	stride, dim := h.columns.Stride, h.dim()
	r.products = resize(r.products, m*stride)
	r.lows, r.highs = resize(r.lows, (dim+31)&^31), resize(r.highs, (dim+31)&^31)
	r.tier.Tokens.CentroidScores(r.products, states, m, &h.columns, r.lows, r.highs, nil)
	x = r.products[:m*dim]
	for i := range m {
		row := x[i*dim : (i+1)*dim]
		copy(row, r.products[i*stride:]) // which may overlap, to the left
		if t.Scales != nil {
			scale := t.Scales[lo+int(r.row(int32(min(from+i, to-1))))]
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
		r.units(x, dim)
	}
	return x, r.factors
}
