package kerneltest

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
)

// testScreen: S that is screened gives all backends the same bits, about the same
// scores by centroids, the best centroids, and scores of documents as if it were all
// there, at level Fine to the bit.
func testScreen(t *testing.T, b kernels.Backend) {
	generic, err := kernels.Select("generic")
	require.NoError(t, err)
	const k = 1<<16 + 5
	lengths := []int{5, 0, 17, 64, 1, 70, 30, 30, 30, 200}
	for i, cfg := range []Config{
		{Dim: 64, Nbits: 2, CentroidScale: true, DimScale: true},
		{Dim: 30, Nbits: 4, Type: kernels.F32},
		{Dim: 16, Nbits: 8, Table: true, Type: kernels.F16},
	} {
		if !effort.Long() {
			if i == 2 {
				continue
			}
			cfg.Dim = min(cfg.Dim, 12)
		}
		cfg.K, cfg.Lengths = k, lengths
		c := New(cfg)
		s, other := newScorer(t, b, c), newScorer(t, generic, c)
		old := s.NewQuery()
		for lq, n := range map[int]int{3: 1, 37: 25} {
			if !effort.Long() && (lq == 37) != (i == 0) {
				continue
			}
			vectors, weights := c.Query(lq), c.Weights(lq, 0.5, 1)
			plain := Prepare(t, s.NewQuery(), k, vectors, weights)
			ref, list := screened(t, other.NewQuery(), c, vectors, weights, n)
			q, top := screened(t, old, c, vectors, weights, n)
			require.Equal(t, list, top)
			checkTop(t, plain, top, n)
			sameApprox(t, c, plain, ref, q)
			sameMaxSim(t, c, plain, q)
		}
	}
	c := New(Config{K: 100, Lengths: lengths, CentroidScale: true})
	vectors := c.Query(20)
	plain := Prepare(t, newScorer(t, b, c).NewQuery(), c.K, vectors, nil)
	q := newScorer(t, b, c).NewQuery()
	require.NoError(t, q.Reset(vectors, nil))
	require.False(t, q.Screen(5), "of so few centroids")
	require.True(t, q.Screen(0))
	q.Seal()
	sameMaxSim(t, c, plain, q)
}

// screened prepares a query in parts, of which the last is short, and returns the best
// centroids, too.
func screened(t *testing.T, q kernels.Query, c *Case, vectors, weights []float32, n int) (kernels.Query, []kernels.CentroidScore) {
	t.Helper()
	require.NoError(t, q.Reset(vectors, weights))
	require.True(t, q.Screen(n))
	var wg sync.WaitGroup
	bounds := []int{0, 8192, 8193, c.K - 3, c.K}
	for i := range len(bounds) - 1 {
		wg.Go(func() { q.CentroidScores(bounds[i], bounds[i+1]) })
	}
	wg.Wait()
	q.Seal()
	top := make([]kernels.CentroidScore, q.Len()*n)
	q.Top(top, n)
	return q, top
}

// checkTop compares the best centroids with those by all of S.
func checkTop(t *testing.T, plain kernels.Query, got []kernels.CentroidScore, n int) {
	t.Helper()
	want := make([]kernels.CentroidScore, len(got))
	plain.Top(want, n)
	same := 0
	for i, w := range want {
		if got[i] == w {
			same++
		}
		require.InDelta(t, w.Score, got[i].Score, 0.02, "place %d", i%n)
	}
	require.GreaterOrEqual(t, same, len(want)*99/100)
}

// sameApprox: centroid-only scores have the bits of the other query, and are near those
// by all of S.
func sameApprox(t *testing.T, c *Case, plain, ref, q kernels.Query) {
	t.Helper()
	docs := c.Chunk.Docs()
	near, want, got := make([]float32, docs), make([]float32, docs), make([]float32, docs)
	plain.Approx(near, c.Chunk, nil)
	ref.Approx(want, c.Chunk, nil)
	q.Approx(got, c.Chunk, nil)
	require.Equal(t, want, got)
	for i := range near {
		require.InDelta(t, near[i], got[i], 0.03*float64(q.Len()), "document %d", i)
	}
}

// sameMaxSim requires rows of S in turn, which is more and more of the chunk.
func sameMaxSim(t *testing.T, c *Case, plain, q kernels.Query) {
	t.Helper()
	lists := [][]uint32{{2}, {0, 2, 3}, nil}
	for _, docs := range lists {
		n := len(docs)
		if docs == nil {
			n = c.Chunk.Docs()
			lo := c.Chunk.Offsets[n-1]
			q.RequireTokens(c.Chunk, int(lo), c.Chunk.Tokens())
		}
		q.Require(c.Chunk, docs)
		var wg sync.WaitGroup
		for lo := 0; lo < c.K; lo += 4096 {
			wg.Go(func() { q.Fill(lo, min(lo+4096, c.K)) })
		}
		wg.Wait()
		want, got := make([]float32, n), make([]float32, n)
		plain.MaxSim(want, c.Chunk, docs, kernels.Fine)
		q.MaxSim(got, c.Chunk, docs, kernels.Fine)
		require.Equal(t, want, got)
		fast := make([]float32, n)
		q.MaxSim(fast, c.Chunk, docs, kernels.Fast)
		for i := range fast {
			require.LessOrEqual(t, math.Abs(float64(fast[i])-float64(got[i])), float64(q.ErrorBound(kernels.Fast)))
		}
	}
}
