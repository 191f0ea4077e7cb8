package maxsim

import (
	"context"
	"fmt"
	"math"
)

// Head is the last layer of an encoder: it computes the token vector W·x + b of a hidden
// state x.
type Head struct {
	// Weights is W, [d, h]: a row for each dimension of token vectors, as nn.Linear of
	// PyTorch keeps it.
	Weights Matrix
	// Bias is b, [d]. nil means 0.
	Bias []float32
}

// HeadCall has the arguments and results of [HeadScorer.ScoreHead]: the scores of
// [Backend.Score] for documents given as hidden states. Their token vectors are computed
// block by block and never all in memory.
type HeadCall struct {
	Q    Operand // token vectors, of d dimensions
	D    Operand // hidden states, of h dimensions
	Head Head
	Pairs
	// Terms are those of scores, except that Normalize applies only to the token vectors
	// of documents, not to queries.
	Terms
	// Scores receives the score of each pair.
	Scores []float32
}

// HeadScorer is a [Backend] that scores hidden states.
type HeadScorer interface {
	ScoreHead(ctx context.Context, c *HeadCall) error
}

// ScoreHead scores hidden states on a backend. The error wraps [ErrUnsupported] if the
// backend does not implement [HeadScorer].
func ScoreHead(ctx context.Context, b Backend, c *HeadCall) error {
	if x, ok := b.(HeadScorer); ok {
		return x.ScoreHead(ctx, c)
	}
	return fmt.Errorf("%w: scores of hidden states on %s", ErrUnsupported, b.Name())
}

// Check checks the call as [Call.Check] does. In the Work, D is the shape of the hidden
// states.
func (c *HeadCall) Check() (Work, error) {
	w, err := checkOperandShapes(c.Q, c.D, &c.Pairs, &c.Terms)
	if err != nil {
		return w, err
	}
	if err := c.Head.checkSizes(w.Q.Dim, w.D.Dim); err != nil {
		return w, err
	}
	if len(c.Scores) != w.Pairs {
		return w, shapeErrorf("%d scores for %d pairs", len(c.Scores), w.Pairs)
	}
	queries := c.Terms
	queries.Normalize = false
	warnIfNotUnit(c.Q, &queries)
	return w, nil
}

// checkSizes checks the head's arrays for queries of d dimensions and hidden states of
// hidden ones.
func (h *Head) checkSizes(d, hidden int) error {
	if err := h.Weights.Validate(); err != nil {
		return shapeErrorf("head: %w", err)
	}
	if rows := h.Weights.Rows(); rows != d || h.Weights.Dim != hidden {
		return shapeErrorf("a head of %d × %d for queries of dimension %d and hidden states of %d",
			rows, h.Weights.Dim, d, hidden)
	}
	if h.Bias != nil && len(h.Bias) != d {
		return shapeErrorf("%d biases for %d dimensions", len(h.Bias), d)
	}
	return nil
}

// OracleTokens returns the token vectors that a head computes from the rows of a batch, with
// normalize divided by their length, or nil for masked rows.
func (h *Head) OracleTokens(b *Batch, normalize bool) [][]float64 {
	weights := oracleRows(Single(h.Weights), false)
	tokens := make([][]float64, b.Tokens.Rows())
	for i := range tokens {
		if !b.IsToken(i) {
			continue
		}
		x, y := OracleRow(b, i, false), make([]float64, len(weights))
		for j, w := range weights {
			if y[j] = dotFloat64(w, x); h.Bias != nil {
				y[j] += float64(h.Bias[j])
			}
		}
		if length := math.Sqrt(dotFloat64(y, y)); normalize && length > 0 {
			for j := range y {
				y[j] /= length
			}
		}
		tokens[i] = y
	}
	return tokens
}

// Oracle computes the scores of a call.
func (c *HeadCall) Oracle() []float64 {
	q, d := c.Q.(*Batch), c.D.(*Batch)
	n, _ := c.countPairs(q.Len(), d.Len())
	scores := make([]float64, n)
	tokens := c.Head.OracleTokens(d, c.Normalize)
	for p := range n {
		qi, di := c.PairAt(p, d.Len())
		first, _ := q.Span(qi)
		lo, hi := d.Span(di)
		for s, x := range oracleItem(q, qi, false) {
			best := math.Inf(-1)
			for _, y := range tokens[lo:hi] {
				if x != nil && y != nil {
					best = max(best, dotFloat64(x, y))
				}
			}
			if !math.IsInf(best, -1) {
				scores[p] += c.weight(first+s) * best
			}
		}
	}
	return scores
}
