package maxsimtest

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// rank: the best of what Score says, whatever the layout, held or not.
func (s *suite) rank(t *testing.T) {
	rng := Rand(31)
	ranker := s.b.(maxsim.Ranker)
	for i, nd := range []int{0, 1, 5, 700} {
		var lengths []int
		for range nd {
			lengths = append(lengths, rng.IntN(5))
		}
		q := Side{Lengths: []int{3, 0, 40, 1}}.Batch(rng, 12)
		d := Side{Lengths: lengths, Padded: i%2 == 1, Masked: 0.2}.Batch(rng, 12)
		terms := maxsim.Terms{Normalize: i%2 == 0, Weights: Normal(rng, q.Tokens.Rows())}
		all := NewCall(q, d, maxsim.All(), terms)
		all.Argmax = nil
		require.NoError(t, s.b.Score(ctx(), all))
		h, err := s.b.Hold(ctx(), d, maxsim.HoldOptions{})
		require.NoError(t, err)
		for _, k := range []int{0, 1, 10, 300, nd + 3} {
			for _, of := range []maxsim.Operand{d, h} {
				c := &maxsim.RankCall{Q: q, D: of, Terms: terms, K: k, Docs: make([]int32, k*q.Len()), Scores: make([]float32, k*q.Len())}
				require.NoError(t, ranker.Rank(ctx(), c))
				for x := range q.Len() {
					docs, scores := bestOf(d, all.Scores[x*nd:(x+1)*nd], k)
					require.Equal(t, docs, c.Docs[x*k:(x+1)*k], "k %d of %d, query %d", k, nd, x)
					require.Equal(t, scores, c.Scores[x*k:(x+1)*k])
				}
			}
		}
		require.NoError(t, h.Close())
		c := &maxsim.RankCall{Q: q, D: h, K: 1, Docs: make([]int32, 4), Scores: make([]float32, 4)}
		require.ErrorIs(t, ranker.Rank(ctx(), c), maxsim.ErrForeign)
		c.D, c.K = d, 2
		require.ErrorIs(t, ranker.Rank(ctx(), c), kernels.ErrShape)
		c.K = -1
		require.ErrorIs(t, ranker.Rank(ctx(), c), kernels.ErrShape)
		over, cancel := context.WithCancel(ctx())
		cancel()
		c.K = 1
		require.ErrorIs(t, ranker.Rank(over, c), context.Canceled)
	}
}

func bestOf(d *maxsim.Batch, all []float32, k int) (docs []int32, scores []float32) {
	var order []int32
	for i := range all {
		lo, hi := d.Span(i)
		for ; lo < hi; lo++ {
			if d.IsToken(lo) {
				order = append(order, int32(i))
				break
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case all[a] > all[b]:
			return -1
		case all[a] < all[b]:
			return 1
		}
		return 0
	})
	docs, scores = make([]int32, k), make([]float32, k)
	for i := range docs {
		docs[i] = -1
		if i < len(order) {
			docs[i], scores[i] = order[i], all[order[i]]
		}
	}
	return docs, scores
}
