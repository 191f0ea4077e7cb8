package maxsim

import (
	"context"
	"fmt"
	"math"
)

// Head is the last layer of an encoder, which makes a token vector of a hidden
// state: W·x + b.
type Head struct {
	// Weights is W, [d, h]: a row for each dimension of token vectors, as nn.Linear of
	// PyTorch keeps it.
	Weights Matrix
	// Bias is b, [d]; nil: none.
	Bias []float32
}

// HeadCall is what [Heads.ScoreHead] is to do: the scores of [Backend.Score], with
// the token vectors of documents made of their hidden states on the way. They are in
// memory a tile at a time, not all of them.
type HeadCall struct {
	Q    Operand // token vectors, of d dimensions
	D    Operand // hidden states, of h dimensions
	Head Head
	Pairs
	// Terms are those of scores, but Normalize divides the token vectors that the head makes
	// alone: queries stay as they are.
	Terms
	// Scores gets the score of each pair.
	Scores []float32
}

// Heads is a [Backend] that scores hidden states.
type Heads interface {
	ScoreHead(ctx context.Context, c *HeadCall) error
}

// ScoreHead scores hidden states on a backend that can, and is [ErrUnsupported] on
// others.
func ScoreHead(ctx context.Context, b Backend, c *HeadCall) error {
	if x, ok := b.(Heads); ok {
		return x.ScoreHead(ctx, c)
	}
	return fmt.Errorf("%w: scores of hidden states on %s", ErrUnsupported, b.Name())
}

// Check checks the call. In the Work, D is the shape of the hidden states.
func (c *HeadCall) Check() (Work, error) {
	w, err := checkSides(c.Q, c.D, &c.Pairs, &c.Terms)
	if err != nil {
		return w, err
	}
	if err := c.Head.checkSizes(w.Q.Dim, w.D.Dim); err != nil {
		return w, err
	}
	if len(c.Scores) != w.Pairs {
		return w, shapeErrorf("room for %d scores of %d pairs", len(c.Scores), w.Pairs)
	}
	queries := c.Terms
	queries.Normalize = false
	warnIfNotUnit(c.Q, &queries)
	return w, nil
}

func (h *Head) checkSizes(d, hidden int) error {
	if err := h.Weights.Validate(); err != nil {
		return shapeErrorf("head: %w", err)
	}
	if rows := h.Weights.Rows(); rows != d || h.Weights.Dim != hidden {
		return shapeErrorf("a head of %d × %d for queries of dimension %d and hidden states of %d", rows, h.Weights.Dim, d, hidden)
	}
	if h.Bias != nil && len(h.Bias) != d {
		return shapeErrorf("%d biases for %d dimensions", len(h.Bias), d)
	}
	return nil
}

// OracleTokens are the token vectors that a head makes of the rows of a batch, divided
// by their length where normalize says so; those that are masked are nil.
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
		qi, di := c.At(p, d.Len())
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
