package search

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/topk"
)

// The leaders' gaps have mean 2 and deviation 1, and the tenth best of them
// scores 5: what is more than the confidence below 5−2 is not worth scoring.
func TestFloor(t *testing.T) {
	approx, exact := make([]topk.Scored, 20), make([]topk.Scored, 20)
	for i := range approx {
		gap := float32(1 + 2*(i%2))
		exact[i] = topk.Scored{Doc: uint32(i), Score: float32(15 - i)}
		approx[i] = topk.Scored{Doc: uint32(i), Score: exact[i].Score - gap}
	}
	for k, best := range map[int]float64{1: 15, 10: 6} {
		limit, even := floor(approx, exact, k, 3.5)
		require.InDelta(t, best-2-3.5, limit, 1e-6)
		require.InDelta(t, best-2, even, 1e-6)
	}
	limit, _ := floor(approx, exact, 21, 3.5)
	require.True(t, math.IsInf(limit, -1), "fewer than k leaders drop nothing")
}

func TestConfidence(t *testing.T) {
	require.InDelta(t, 3.5, confidence(1, 1), 1e-9)
	require.InDelta(t, 3.5, confidence(10, 1), 1e-9)
	require.InDelta(t, 2.25, confidence(100, 1), 1e-9)
	require.InDelta(t, 2.25, confidence(5000, 1), 1e-9)
	for k := 11; k < 100; k++ {
		require.Less(t, confidence(k, 1), confidence(k-1, 1))
	}
}

func TestAbove(t *testing.T) {
	s := []topk.Scored{{Doc: 0, Score: 3}, {Doc: 1, Score: 1}, {Doc: 2, Score: 5}, {Doc: 3, Score: 2}, {Doc: 4, Score: 4}}
	require.Equal(t, 3, above(s, 2))
	require.ElementsMatch(t, []topk.Scored{{Doc: 0, Score: 3}, {Doc: 2, Score: 5}, {Doc: 4, Score: 4}}, s[:3])
	require.ElementsMatch(t, []topk.Scored{{Doc: 1, Score: 1}, {Doc: 3, Score: 2}}, s[3:])
	require.Equal(t, 5, above(s, math.Inf(-1)))
	require.Zero(t, above(s, 5))
	require.Zero(t, above(nil, 0))
}

// What a query decides to score is the best documents by approximate score,
// leaders included, and never more than the bound.
func TestQueryDecidesHowManyAreScored(t *testing.T) {
	m := newMaker(31, 32, 200)
	ix := searchtest.Build(t, 32, m.Docs("d", 4000, 12), nil)
	snap := searchtest.Snapshot(t, ix)
	e := at(t, snap, 1)
	rng := rand.New(rand.NewPCG(5, 5))
	differ := map[int64]bool{}
	times := 20
	if effort.Brief() {
		times = 7
	}
	for range times {
		q := m.query(4 + rng.IntN(20))
		for _, k := range []int{1, 10, 40} {
			res, err := e.Search(t.Context(), q, Options{K: k})
			require.NoError(t, err)
			require.Len(t, res.Hits, k)
			s := res.Stats
			require.GreaterOrEqual(t, s.ExactDocs, int64(min(leading(k, 1), int(s.Candidates))))
			require.LessOrEqual(t, s.ExactDocs, int64(mostExact(k, 1)))
			require.GreaterOrEqual(t, s.RefinedDocs, int64(k))
			if k == 10 {
				differ[s.ExactDocs] = true
			}
			// Asking for as many as the query took finds the same documents.
			again, err := e.Search(t.Context(), q, Options{K: k, Exact: int(s.ExactDocs)})
			require.NoError(t, err)
			require.Equal(t, res.Hits, again.Hits)
		}
	}
	require.Greater(t, len(differ), 3, "each query decides for itself")
}

// TestEffort: more effort is more of everything, and that of 1 is what is derived.
func TestEffort(t *testing.T) {
	require.InDelta(t, 4, confidence(10, 2), 1e-9)
	require.InDelta(t, 0.5, confidence(100, LeastEffort/8), 1e-9)
	for _, k := range []int{10, 100, 1000} {
		probes, tokens := 0, 0.0
		for _, effort := range []float64{LeastEffort, 0.5, 1, 2, MostEffort} {
			p, n := derived(k, effort)
			require.GreaterOrEqual(t, p, max(probes, 1))
			require.LessOrEqual(t, p, insertProbes)
			require.Greater(t, n, tokens)
			probes, tokens = p, n
		}
	}
	for _, effort := range []float64{-1, LeastEffort / 2, 2 * MostEffort, math.NaN()} {
		require.ErrorIs(t, (&Options{Effort: effort}).validate(), ErrOption)
	}
}
