package maxsimtest

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// topK: the best of all scores, whatever the batches they come in.
func (s *suite) topK(t *testing.T) {
	rng := Rand(30)
	var lengths []int
	for range 300 {
		lengths = append(lengths, rng.IntN(4))
	}
	q, d := Side{Lengths: []int{3, 9}}.Batch(rng, 8), Side{Lengths: lengths, Masked: 0.3}.SmallBatch(rng, 8)
	for i := range q.Tokens.F32 { // exact products, and ties
		q.Tokens.F32[i] = float32(math.Round(float64(q.Tokens.F32[i])))
	}
	c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
	require.NoError(t, s.b.Score(ctx(), c))
	var want [2][]maxsim.Hit
	for p, score := range c.Scores {
		if slices.Max(c.Argmax[p*q.MaxRows():(p+1)*q.MaxRows()]) >= 0 {
			want[p/300] = append(want[p/300], maxsim.Hit{Doc: p % 300, Score: score})
		}
	}
	for _, k := range []int{0, 1, 7, 1000} {
		var expected [][]maxsim.Hit
		for _, hits := range want {
			slices.SortStableFunc(hits, func(a, b maxsim.Hit) int {
				switch {
				case a.Score > b.Score:
					return -1
				case a.Score < b.Score:
					return 1
				}
				return a.Doc - b.Doc
			})
			expected = append(expected, hits[:min(k, len(hits))])
		}
		got, err := maxsim.TopK(ctx(), s.b, q, d, k, maxsim.Terms{})
		require.NoError(t, err)
		require.Equal(t, expected, nonNil(got))
		top := maxsim.NewTop(k)
		for lo := 0; lo < 300; lo += 70 {
			hi := min(lo+70, 300)
			part := maxsim.Batch{Tokens: d.Tokens, Layout: maxsim.Layout{Offsets: d.Offsets[lo : hi+1], Mask: d.Mask}}
			require.NoError(t, top.Add(ctx(), s.b, q, &part, maxsim.Terms{}))
		}
		require.Equal(t, expected, nonNil(top.Hits()))
		require.ErrorIs(t, top.Add(ctx(), s.b, maxsim.Single(q.Tokens), d, maxsim.Terms{}), kernels.ErrShape)
	}
}

func nonNil(hits [][]maxsim.Hit) [][]maxsim.Hit {
	for i := range hits {
		if hits[i] == nil {
			hits[i] = []maxsim.Hit{}
		}
	}
	return hits
}
