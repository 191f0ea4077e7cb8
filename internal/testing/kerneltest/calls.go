package kerneltest

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
)

// scoresOf returns the results of all scoring functions: Approx, and MaxSim at
// both levels.
func scoresOf(q kernels.Query, ch *kernels.Chunk, docs []uint32) [][]float32 {
	n := ch.Docs()
	if docs != nil {
		n = len(docs)
	}
	out := [][]float32{make([]float32, n), make([]float32, n), make([]float32, n)}
	q.Approx(out[0], ch, docs)
	q.MaxSim(out[1], ch, docs, kernels.Fast)
	q.MaxSim(out[2], ch, docs, kernels.Fine)
	return out
}

// testSubsets checks that a document's score does not depend on the other documents of a call.
func testSubsets(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: []int{5, 0, 17, 64, 1, 70, 33, 0, 16, 2}, K: 100})
	s := newScorer(t, b, c)
	vectors := c.Query(32)
	checkScores(t, c, s, vectors, nil, []uint32{6, 1, 1, 9, 0})
	q := Prepare(t, s.NewQuery(), c.K, vectors, nil)
	scores := scoresOf(q, c.Chunk, nil)
	for _, docs := range [][]uint32{{}, {3}, {9, 8, 7}, {5, 5, 5, 0, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		subset := scoresOf(q, c.Chunk, docs)
		for stage := range subset {
			require.Len(t, subset[stage], len(docs))
			for i, doc := range docs {
				require.Equal(t, scores[stage][doc], subset[stage][i], "stage %d, document %d", stage, doc)
			}
		}
	}
	empty := &kernels.Chunk{CodeBytes: 4}
	require.NoError(t, empty.Validate(c.Codec))
	scoresOf(q, empty, nil)
	empty.Offsets = []uint32{0}
	scoresOf(q, empty, nil)
}

// testSeveral checks that queries of several lengths, all prepared and then scored in turn,
// have the bits of a query with a scorer of its own.
func testSeveral(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: []int{5, 0, 17, 64, 1, 70}, K: 100})
	s := newScorer(t, b, c)
	var qs []kernels.Query
	var want [][][]float32
	for _, lq := range []int{32, 1, 33, 8, 64} {
		vectors := c.Query(lq)
		qs = append(qs, Prepare(t, s.NewQuery(), c.K, vectors, nil))
		alone := Prepare(t, newScorer(t, b, c).NewQuery(), c.K, vectors, nil)
		want = append(want, scoresOf(alone, c.Chunk, nil))
	}
	for range 2 {
		for i, q := range qs {
			require.Equal(t, want[i], scoresOf(q, c.Chunk, nil))
		}
	}
}

// testReuse checks that a query that was reset has the bits of a new one, and keeps no
// reference to its arguments.
func testReuse(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: []int{5, 0, 17, 64, 1, 70}, K: 100, CentroidScale: true})
	s := newScorer(t, b, c)
	old := s.NewQuery()
	for _, lq := range []int{40, 3, 32, 1, 70, 8} {
		vectors, weights := c.Query(lq), c.Weights(lq, 0, 1)
		fresh := Prepare(t, s.NewQuery(), c.K, vectors, weights)
		v, w := append([]float32{}, vectors...), append([]float32{}, weights...)
		require.NoError(t, old.Reset(v, w))
		clear(v)
		clear(w)
		old.CentroidScores(0, c.K)
		old.Seal()
		require.Equal(t, scoresOf(fresh, c.Chunk, nil), scoresOf(old, c.Chunk, nil))
	}
}

// testRanges checks that S may be computed by ranges, in any order, at the same time.
func testRanges(t *testing.T, b kernels.Backend) {
	for _, lq := range []int{1, 9, 32} {
		c := New(Config{Lengths: []int{5, 0, 17, 64, 1, 70}, K: 777, Dim: 96, Type: kernels.F16})
		s := newScorer(t, b, c)
		vectors := c.Query(lq)
		atOnce := Prepare(t, s.NewQuery(), c.K, vectors, nil)
		inRanges := s.NewQuery()
		require.NoError(t, inRanges.Reset(vectors, nil))
		var wg sync.WaitGroup
		bounds := []int{777, 700, 513, 512, 100, 100, 33, 1, 0}
		for i := range len(bounds) - 1 {
			wg.Go(func() { inRanges.CentroidScores(bounds[i+1], bounds[i]) })
		}
		wg.Wait()
		inRanges.Seal()
		x, stride := atOnce.Scores()
		y, _ := inRanges.Scores()
		require.Equal(t, x[:c.K*stride], y[:c.K*stride])
		require.Equal(t, scoresOf(atOnce, c.Chunk, nil), scoresOf(inRanges, c.Chunk, nil))
	}
}

// testConcurrent checks that goroutines may share a sealed query.
func testConcurrent(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: repeat(30, 20), K: 100, CodeBytes: 2})
	s := newScorer(t, b, c)
	vectors := c.Query(32)
	want := scoresOf(Prepare(t, s.NewQuery(), c.K, vectors, nil), c.Chunk, nil)
	shared := Prepare(t, s.NewQuery(), c.K, vectors, nil)
	var wg sync.WaitGroup
	got := make([][][]float32, 8)
	for i := range got {
		wg.Go(func() { got[i] = scoresOf(shared, c.Chunk, nil) })
	}
	wg.Wait()
	for i := range got {
		require.Equal(t, want, got[i])
	}
}

// testBadInput checks that invalid queries and codecs are refused.
func testBadInput(t *testing.T, b kernels.Backend) {
	c := New(Config{Lengths: []int{3}})
	s := newScorer(t, b, c)
	nan, inf := c.Query(2), c.Query(2)
	nan[c.Dim+1], inf[3] = float32(math.NaN()), float32(math.Inf(-1))
	q := s.NewQuery()
	for name, in := range map[string][2][]float32{
		"none":             {},
		"part of a vector": {make([]float32, c.Dim+1)},
		"weights":          {c.Query(2), {1}},
		"NaN":              {nan},
		"infinity":         {inf},
		"NaN weight":       {c.Query(1), {float32(math.NaN())}},
	} {
		require.Error(t, q.Reset(in[0], in[1]), name)
	}
	checkScores(t, c, s, c.Query(2), nil, nil)

	codec := *c.Codec
	codec.FactorMax = 0
	_, err := b.Scorer(&codec)
	require.ErrorIs(t, err, kernels.ErrShape)
}

// testNearest compares nearest centroids with the oracle, also with exact ties and split calls.
func testNearest(t *testing.T, b kernels.Backend) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, shape := range []struct{ rows, k, dim int }{
		{0, 5, 8}, {1, 1, 1}, {3, 7, 1}, {5, 2, 7}, {17, 33, 64}, {33, 100, 96}, {64, 129, 128}, {9, 65, 130},
		{130, 30, 200}, {65, 600, 33}, {100, 1111, 128}, {40, 512, 768}, {3, 600, 128}, {20, 515, 4096},
	} {
		if size := shape.rows * shape.k * shape.dim; effort.Brief() && size > 3e6 {
			continue
		} else if !effort.Long() && size > 1e7 {
			shape.rows = 3
		}
		centroids, x := UnitVectors(rng, shape.k, shape.dim), UnitVectors(rng, shape.rows, shape.dim)
		CheckNearest(t, b, centroids, x, shape.dim)

		// Rows near a centroid; every centroid twice; rows and centroids of zeros.
		for i := range shape.rows {
			c := rng.IntN(shape.k)
			for j := range shape.dim {
				x[i*shape.dim+j] = 0.3*x[i*shape.dim+j] + centroids[c*shape.dim+j]
			}
		}
		if shape.rows > 2 {
			clear(x[2*shape.dim : 3*shape.dim])
		}
		CheckNearest(t, b, append(centroids, centroids...), x, shape.dim)
		CheckNearest(t, b, make([]float32, len(centroids)), x, shape.dim)
	}
}

// CheckNearest compares the nearest centroids of the rows of x with the oracle, and with
// the results of repeated and split calls.
func CheckNearest(t *testing.T, b kernels.Backend, centroids, x []float32, dim int) {
	t.Helper()
	n := len(x) / dim
	codes, scores := make([]uint32, n), make([]float32, n)
	require.NoError(t, b.Nearest(context.Background(), codes, scores, centroids, x, dim))
	want, best := kernels.OracleNearest(centroids, x, dim)
	first := map[string]uint32{} // of equal centroids
	key := func(c uint32) string {
		return string(EncodeCentroids(centroids[int(c)*dim:int(c+1)*dim], kernels.F32))
	}
	for c := len(centroids)/dim - 1; c >= 0; c-- {
		first[key(uint32(c))] = uint32(c)
	}
	for i, c := range codes {
		require.Equal(t, first[key(c)], c, "row %d: not the first of equal centroids", i)
		require.InDelta(t, best[i], scores[i], 1e-5)
		if c != want[i] { // it must be another of the best, within rounding
			_, p := kernels.OracleNearest(centroids[int(c)*dim:int(c+1)*dim], x[i*dim:(i+1)*dim], dim)
			require.InDelta(t, best[i], p[0], 1e-6, "row %d: %d is not nearest", i, c)
		}
	}
	repeated := make([]uint32, n)
	require.NoError(t, b.Nearest(context.Background(), repeated, nil, centroids, x, dim))
	require.Equal(t, codes, repeated)
	splitScores := make([]float32, n)
	for lo := 0; lo < n; {
		hi := min(lo+1+lo%19, n)
		err := b.Nearest(context.Background(), repeated[lo:hi], splitScores[lo:hi], centroids, x[lo*dim:hi*dim], dim)
		require.NoError(t, err)
		lo = hi
	}
	require.Equal(t, codes, repeated, "the result depends on the split")
	require.Equal(t, scores, splitScores, "the result depends on the split")
}
