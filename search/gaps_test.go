package search

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/topk"
)

// The gaps have mean 2 and deviation 1, and the tenth best of the documents scores 6:
// what is more than the confidence below 6−2 is not worth scoring.
func TestGaps(t *testing.T) {
	approx, exact := make([]topk.Scored, 20), make([]topk.Scored, 20)
	for i := range approx {
		gap := float32(1 + 2*((i+i/2)%2)) // 1, 3, 3, 1: no slope
		approx[i] = topk.Scored{Doc: uint32(i), Score: float32(13 - i)}
		exact[i] = topk.Scored{Doc: uint32(i), Score: approx[i].Score + gap}
	}
	g := measureGaps(approx, exact, true)
	require.InDelta(t, 0, g.slope, 1e-6)
	require.InDelta(t, 2, g.mean, 1e-6)
	require.InDelta(t, 1, g.deviation, 1e-6)
	for k, best := range map[int]float64{1: 15, 10: 6} {
		p := &plan{k: k, share: 1, deviations: 3.5}
		require.InDelta(t, best-2-3.5, g.worthScoring(exact, p), 1e-6)
		require.InDelta(t, best-2, g.breakEven(exact, p), 1e-6)
	}
	require.True(t, math.IsInf(g.worthScoring(exact, &plan{k: 21, share: 1}), -1), "fewer than k leaders drop nothing")
	require.Zero(t, measureGaps(nil, nil, true))

	// Gaps that grow with the approximate score: what scores a is expected at 1.5a − 1.
	for i := range approx {
		exact[i].Score = 1.5*approx[i].Score - 1
	}
	g = measureGaps(approx, exact, true)
	require.InDelta(t, 0.5, g.slope, 1e-6)
	require.InDelta(t, 0, g.deviation, 1e-3)
	require.InDelta(t, 13, g.breakEven(exact, &plan{k: 1, share: 1}), 1e-5)
	require.InDelta(t, 4, g.breakEven(exact, &plan{k: 10, share: 1}), 1e-5)
	require.Zero(t, measureGaps(approx, exact, false).slope)
	// Gaps that shrink with it: they are taken for equal.
	for i := range approx {
		exact[i].Score = 0.5*approx[i].Score + 9
	}
	require.Zero(t, measureGaps(approx, exact, true).slope)
}

// What is drawn is spread evenly over the ranks, and depends on scores alone.
func TestDraw(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	s := make([]topk.Scored, 1000)
	for same := 1; same <= 50; same++ {
		for i := range s {
			s[i] = topk.Scored{Doc: uint32(i), Score: float32(i/same*same - 500)}
		}
		var first []topk.Scored
		for round := range 3 {
			rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
			some := sampleAbove(s, -301, 100) // of the 800 above that, and their equals
			require.InDelta(t, 100, len(some), float64(same))
			quarters := [4]int{}
			for _, d := range some {
				require.Greater(t, d.Score, float32(-301))
				quarters[(d.Doc-200)/200]++
			}
			for _, n := range quarters {
				require.InDelta(t, 25, n, float64(1+same))
			}
			all := map[uint32]bool{}
			for _, d := range s {
				all[d.Doc] = true
			}
			require.Len(t, all, len(s), "none is lost")
			if round == 0 {
				first = slices.Clone(some)
			}
			require.ElementsMatch(t, first, some)
		}
	}
	for i := range s {
		s[i].Score = float32(s[i].Doc)
	}
	best := sampleAbove(s, 996.5, 5)
	slices.SortFunc(best, topk.Order)
	require.Equal(t, []topk.Scored{{Doc: 999, Score: 999}, {Doc: 998, Score: 998}, {Doc: 997, Score: 997}, {Doc: 996, Score: 996}, {Doc: 995, Score: 995}}, best)
	require.Len(t, sampleAbove(s[:5], 0, 8), 5)
	require.Empty(t, sampleAbove(nil, 0, 8))
}
