package maxsim

import "context"

// RankCall is what [Ranker.Rank] is to do: find the K best documents of each query,
// among all of D.
type RankCall struct {
	Q, D Operand
	Terms
	K int
	// Docs and Scores get the best documents of each query and their scores, [Nq, K],
	// the highest score first and of several with the same score the first document.
	// Documents without tokens are not among them. Where there are fewer than K, the
	// rest is −1 and 0.
	Docs   []int32
	Scores []float32
}

// Ranker is a [Backend] that ranks without giving the scores of all documents. The
// documents of a device may be many times its memory: they cross it piece by piece.
// [Top] asks one where it can.
type Ranker interface {
	Rank(ctx context.Context, c *RankCall) error
}

// Check checks the call.
func (c *RankCall) Check() (Work, error) {
	w, err := check(c.Q, c.D, &Pairs{}, &c.Terms)
	if err != nil {
		return w, err
	}
	n, err := product(w.Q.Len(), c.K)
	if err != nil {
		return w, err
	}
	if len(c.Docs) != n || len(c.Scores) != n {
		return w, faultf("room for %d documents and %d scores of %d queries with %d each", len(c.Docs), len(c.Scores), w.Q.Len(), c.K)
	}
	warn(c.Q, &c.Terms)
	return w, nil
}
