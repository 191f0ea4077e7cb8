package kerneltest

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
)

// testScreen checks queries whose S is screened. All backends have the same bits and best
// centroids. Centroid-only scores are near those without screening. Scores of documents are
// the same at level Fine, to the bit, and within their bounds at level Fast.
func testScreen(t *testing.T, b kernels.Backend) {
	generic, err := kernels.Select("generic")
	require.NoError(t, err)
	const k = 1<<13 + 5
	lengths := []int{5, 0, 17, 64, 1, 70, 30, 30, 30, 200}
	for i, cfg := range []Config{
		{Dim: 64, Nbits: 2, CentroidScale: true, DimScale: true},
		{Dim: 30, Nbits: 4, Type: kernels.F32},
		{Dim: 16, Nbits: 8, Table: true, Type: kernels.F16},
		{Dim: 100, Nbits: 1, CentroidScale: true, CodeBytes: 2},
		{Dim: 520, Nbits: 8},              // too many dimensions for tables
		{Dim: 600, Nbits: 8, Table: true}, // and a codebook that is not uniform
	} {
		if !effort.Long() && (i == 2 || effort.Brief() && i > 1) {
			continue
		}
		cfg.K, cfg.Lengths = k, lengths
		c := New(cfg)
		s, other := newScorer(t, b, c), newScorer(t, generic, c)
		reused := s.NewQuery()
		for lq, best := range map[int]int{3: 1, 37: 25} {
			if !effort.Long() && (lq == 37) != (i%3 == 0) {
				continue
			}
			vectors, weights := c.Query(lq), c.Weights(lq, 0.5, 1)
			plain := Prepare(t, s.NewQuery(), k, vectors, weights)
			reference, referenceTop := screened(t, other.NewQuery(), c, vectors, weights, best)
			q, top := screened(t, reused, c, vectors, weights, best)
			require.Equal(t, referenceTop, top)
			checkTop(t, plain, top, best)
			checkSameApprox(t, c, plain, reference, q)
			checkFast(t, c, q, vectors, weights)
			checkSameMaxSim(t, c, plain, q)
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
	checkSameMaxSim(t, c, plain, q)
	testScreenExtremes(t, b)
}

// testScreenExtremes has query tokens that are 0, large, small or all alike, and centroids far from
// the origin or all equal.
func testScreenExtremes(t *testing.T, b kernels.Backend) {
	const k = 1<<12 + 1
	for i := range 6 {
		if effort.Brief() && i > 1 {
			return
		}
		c := New(Config{
			Dim:           24,
			Nbits:         1 << (i % 3),
			K:             k,
			Type:          kernels.F32,
			Lengths:       []int{30, 1, 0, 200},
			CentroidScale: i%2 == 0,
			Seed:          uint64(i),
		})
		for j, far := range []float32{0, 1, 1e3, 1e6} { // of some dimensions
			if j != i {
				continue
			}
			for value := 0; value < k*c.Dim; value += 3 {
				data := c.Codec.Centroids.Data[4*value:]
				v := math.Float32frombits(binary.LittleEndian.Uint32(data))
				binary.LittleEndian.PutUint32(data, math.Float32bits(v+far))
			}
		}
		if i == 4 {
			for offset := 4 * c.Dim; offset < len(c.Codec.Centroids.Data); offset += 4 * c.Dim {
				copy(c.Codec.Centroids.Data[offset:], c.Codec.Centroids.Data[:4*c.Dim])
			}
		}
		vectors := c.Query(40)
		row := func(s int) []float32 { return vectors[s*c.Dim : (s+1)*c.Dim] }
		clear(row(3))
		clear(row(4)[1:])
		for j := range c.Dim {
			row(5)[j] *= 1e4
			row(6)[j] *= 1e-12
			row(7)[j] *= 1e-25
		}
		if i == 5 {
			for s := range 39 {
				copy(row(s+1), row(0))
			}
		}
		plain := Prepare(t, newScorer(t, b, c).NewQuery(), k, vectors, nil)
		q, _ := screened(t, newScorer(t, b, c).NewQuery(), c, vectors, nil, 5)
		checkFast(t, c, q, vectors, nil)
		checkSameMaxSim(t, c, plain, q)
	}
}

// checkFast compares level Fast with the oracle, before the rows of S for level Fine are
// computed, and then with level Fine.
func checkFast(t *testing.T, c *Case, q kernels.Query, vectors, weights []float32) {
	t.Helper()
	var listed []uint32
	for doc := range c.Chunk.Docs() {
		listed = append(listed, uint32(doc))
	}
	got := make([]float32, len(listed))
	q.MaxSim(got, c.Chunk, nil, kernels.Fast)
	bound := float64(q.ErrorBound(kernels.Fast))
	for doc, v := range got {
		want, _ := kernels.OracleMaxSim(c.Codec, vectors, weights, c.Chunk, doc)
		if diff := math.Abs(float64(v) - want); !(diff <= bound+1e-30) {
			tokens := c.Chunk.Offsets[doc+1] - c.Chunk.Offsets[doc]
			t.Fatalf("document %d of %d tokens: %g, oracle %g, bound %g", doc, tokens, v, want, bound)
		}
		checkParts(t, c, q, doc, kernels.Fast, v)
	}
	q.RequireRows(c.Chunk, nil)
	q.ComputeRequiredRows(0, c.K)
	checkShortfall(t, c, q, nil, listed)
}

// screened prepares a query by ranges of centroids, the last one short, and returns it with
// the n best centroids of each query token.
func screened(
	t *testing.T, q kernels.Query, c *Case, vectors, weights []float32, n int,
) (kernels.Query, []kernels.CentroidScore) {
	t.Helper()
	require.NoError(t, q.Reset(vectors, weights))
	require.True(t, q.Screen(n))
	var wg sync.WaitGroup
	bounds := []int{0, 2048, 2049, c.K - 3, c.K}
	for i := range len(bounds) - 1 {
		wg.Go(func() { q.CentroidScores(bounds[i], bounds[i+1]) })
	}
	wg.Wait()
	q.Seal()
	top := make([]kernels.CentroidScore, q.Len()*n)
	q.TopCentroids(top, n)
	return q, top
}

// checkTop compares the best centroids with those of an unscreened query.
func checkTop(t *testing.T, plain kernels.Query, got []kernels.CentroidScore, n int) {
	t.Helper()
	want := make([]kernels.CentroidScore, len(got))
	plain.TopCentroids(want, n)
	same := 0
	for i, w := range want {
		if got[i] == w {
			same++
		}
		require.InDelta(t, w.Score, got[i].Score, 0.02, "place %d", i%n)
	}
	require.GreaterOrEqual(t, same, len(want)*99/100)
}

// checkSameApprox checks that centroid-only scores of q have the bits of ref, and are near those of
// an unscreened query.
func checkSameApprox(t *testing.T, c *Case, plain, ref, q kernels.Query) {
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

// checkSameMaxSim compares scores with those of an unscreened query, requiring rows of S for more
// and more of the chunk.
func checkSameMaxSim(t *testing.T, c *Case, plain, q kernels.Query) {
	t.Helper()
	lists := [][]uint32{{2}, {0, 2, 3}, nil}
	for _, docs := range lists {
		n := len(docs)
		if docs == nil {
			n = c.Chunk.Docs()
			lo := c.Chunk.Offsets[n-1]
			q.RequireRowsOfTokens(c.Chunk, int(lo), c.Chunk.Tokens())
		}
		q.RequireRows(c.Chunk, docs)
		var wg sync.WaitGroup
		for lo := 0; lo < c.K; lo += 4096 {
			wg.Go(func() { q.ComputeRequiredRows(lo, min(lo+4096, c.K)) })
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
