package maxsimtest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// ranking checks that Rank returns the best of the scores of Score, whatever the layout, held or not.
func (s *suite) ranking(t *testing.T) {
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
		allScores := NewCall(q, d, maxsim.All(), terms)
		allScores.Argmax = nil
		require.NoError(t, s.b.Score(background(), allScores))
		h, err := s.b.Prepare(background(), d)
		require.NoError(t, err)
		for _, k := range []int{0, 1, 10, 300, nd + 3} {
			for _, documents := range []maxsim.Operand{d, h} {
				c := &maxsim.RankCall{
					Q:      q,
					D:      documents,
					Terms:  terms,
					K:      k,
					Docs:   make([]int32, k*q.Len()),
					Scores: make([]float32, k*q.Len()),
				}
				require.NoError(t, ranker.Rank(background(), c))
				for x := range q.Len() {
					docs, scores := bestOf(d, allScores.Scores[x*nd:(x+1)*nd], k)
					require.Equal(t, docs, c.Docs[x*k:(x+1)*k], "k %d of %d, query %d", k, nd, x)
					require.Equal(t, scores, c.Scores[x*k:(x+1)*k])
				}
			}
		}
		require.NoError(t, h.Close())
		c := &maxsim.RankCall{Q: q, D: h, K: 1, Docs: make([]int32, 4), Scores: make([]float32, 4)}
		require.ErrorIs(t, ranker.Rank(background(), c), maxsim.ErrForeign)
		c.D, c.K = d, 2
		require.ErrorIs(t, ranker.Rank(background(), c), kernels.ErrShape)
		c.K = -1
		require.ErrorIs(t, ranker.Rank(background(), c), kernels.ErrShape)
		canceled, cancel := context.WithCancel(background())
		cancel()
		c.K = 1
		require.ErrorIs(t, ranker.Rank(canceled, c), context.Canceled)
	}
}

// bestOf returns the k best of the documents that have tokens, padded with −1 if there are fewer.
func bestOf(d *maxsim.Batch, scored []float32, k int) (docs []int32, scores []float32) {
	var order []int32
	for i := range scored {
		lo, hi := d.Span(i)
		for ; lo < hi; lo++ {
			if d.IsToken(lo) {
				order = append(order, int32(i))
				break
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(scored[b], scored[a]) })
	docs, scores = make([]int32, k), make([]float32, k)
	for i := range docs {
		docs[i] = -1
		if i < len(order) {
			docs[i], scores[i] = order[i], scored[order[i]]
		}
	}
	return docs, scores
}

// bestDocuments checks that TopK returns the best of all scores, whatever the batches they come in.
func (s *suite) bestDocuments(t *testing.T) {
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
	require.NoError(t, s.b.Score(background(), c))
	var want [2][]maxsim.ScoredDocument
	for p, score := range c.Scores {
		if slices.Max(c.Argmax[p*q.MaxRows():(p+1)*q.MaxRows()]) >= 0 {
			want[p/300] = append(want[p/300], maxsim.ScoredDocument{Doc: p % 300, Score: score})
		}
	}
	for _, k := range []int{0, 1, 7, 1000} {
		var expected [][]maxsim.ScoredDocument
		for _, hits := range want {
			slices.SortFunc(hits, func(a, b maxsim.ScoredDocument) int {
				return cmp.Or(cmp.Compare(b.Score, a.Score), a.Doc-b.Doc)
			})
			expected = append(expected, hits[:min(k, len(hits))])
		}
		got, err := maxsim.TopK(background(), s.b, q, d, k, maxsim.Terms{})
		require.NoError(t, err)
		require.Equal(t, expected, nonNil(got))
		top := maxsim.NewTop(k)
		for lo := 0; lo < 300; lo += 70 {
			hi := min(lo+70, 300)
			part := maxsim.Batch{Tokens: d.Tokens, Layout: maxsim.Layout{Offsets: d.Offsets[lo : hi+1], Mask: d.Mask}}
			require.NoError(t, top.Add(background(), s.b, q, &part, maxsim.Terms{}))
		}
		require.Equal(t, expected, nonNil(top.Hits()))
		require.ErrorIs(t, top.Add(background(), s.b, maxsim.Single(q.Tokens), d, maxsim.Terms{}), kernels.ErrShape)
	}
}

// nonNil replaces nil lists by empty ones.
func nonNil(hits [][]maxsim.ScoredDocument) [][]maxsim.ScoredDocument {
	for i := range hits {
		if hits[i] == nil {
			hits[i] = []maxsim.ScoredDocument{}
		}
	}
	return hits
}
