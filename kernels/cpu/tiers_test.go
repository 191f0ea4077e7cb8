package cpu_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

// otherTiers are the backends of this processor but for the portable one.
func otherTiers(t testing.TB) (tiers []kernels.Backend) {
	r, err := cpu.Describe("")
	require.NoError(t, err)
	require.Equal(t, "generic", r.Tiers[0])
	for _, name := range r.Tiers[1:] {
		b, err := kernels.Select(name)
		require.NoError(t, err)
		tiers = append(tiers, b)
	}
	return tiers
}

// TestTiers runs the suite on every other backend of this processor.
func TestTiers(t *testing.T) {
	for _, b := range otherTiers(t) {
		t.Run(b.Name(), func(t *testing.T) { kerneltest.Run(t, b) })
	}
}

// results are what a backend computes of a case.
type results struct {
	same [][]float32 // what all backends have to give, as bits
	fast []float32
	fine []float32 // of the same documents
	// errors is how far fast may be from fine, where it may be: on a tier that
	// multiplies bytes.
	tiles  bool
	errors float64
}

func resultsOf(t testing.TB, b kernels.Backend, c *kerneltest.Case, vectors, weights []float32) (r results) {
	s, err := b.Scorer(c.Codec)
	require.NoError(t, err)
	q := kerneltest.Prepare(t, s.NewQuery(), c.K, vectors, weights)
	scores, stride := q.Scores()
	last := uint32(c.Chunk.Docs() - 1)
	docs := []uint32{last, 0, min(1, last), min(1, last)}
	for i, docs := range [][]uint32{nil, docs} {
		n := c.Chunk.Docs()
		if i > 0 {
			n = len(docs)
		}
		dst := make([]float32, 3*n)
		q.Approx(dst[:n], c.Chunk, docs)
		q.MaxSim(dst[n:2*n], c.Chunk, docs, kernels.Fine)
		q.MaxSim(dst[2*n:], c.Chunk, docs, kernels.Fast)
		r.same = append(r.same, dst[:2*n])
		r.fine, r.fast = append(r.fine, dst[n:2*n]...), append(r.fast, dst[2*n:]...)
	}
	r.same = append(r.same, scores[:c.K*stride])
	if r.tiles = cpu.OwnFast(s); r.tiles {
		r.errors = float64(q.ErrorBound(kernels.Fast)) + float64(q.ErrorBound(kernels.Fine))
	} else {
		r.same = append(r.same, r.fast)
	}
	return r
}

// requireAgree compares with the portable backend.
func requireAgree(t testing.TB, want, got results) {
	t.Helper()
	if got.tiles {
		for i, v := range got.fast {
			if diff := math.Abs(float64(v) - float64(want.fine[i])); !(diff <= got.errors+1e-30) {
				t.Fatalf("level Fast, entry %d: %g, level Fine %g, bounds %g", i, v, want.fine[i], got.errors)
			}
		}
		want.same = want.same[:len(want.same)-1]
	}
	requireSameBits(t, want.same, got.same)
}

func requireSameBits(t testing.TB, want, got [][]float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Len(t, got[i], len(want[i]))
		for j := range want[i] {
			if math.Float32bits(want[i][j]) != math.Float32bits(got[i][j]) {
				t.Fatalf("part %d, entry %d: %g, generic %g", i, j, got[i][j], want[i][j])
			}
		}
	}
}

// TestTiersSameBits: every tier gives the bits of the portable backend; level
// Fast by products of bytes is within its bound instead.
func TestTiersSameBits(t *testing.T) {
	tiers := otherTiers(t)
	if len(tiers) == 0 {
		t.Skip("this processor runs the portable backend only")
	}
	dims := []int{1, 16, 64, 96, 100, 128, 256, 768}
	queries := []int{1, 7, 16, 31, 32, 33, 64, 128, 300}
	rng := rand.New(rand.NewPCG(8, 8))
	for i := range 72 {
		if !effort.Long() && i%5 != 0 {
			continue
		}
		cfg := kerneltest.Config{
			Dim: dims[i%8], Nbits: 1 << (i / 2 % 4), K: 1 + rng.IntN(90),
			Type:          kernels.FloatType(rng.IntN(3) + 1),
			CodeBytes:     2 + rng.IntN(2)*2,
			Table:         rng.IntN(2) == 1,
			DimScale:      rng.IntN(2) == 1,
			CentroidScale: rng.IntN(2) == 1,
			ZeroFactors:   rng.IntN(3) == 0,
			Aligned:       rng.IntN(2) == 1,
			Lengths:       []int{rng.IntN(201), rng.IntN(70), 0, 1 + rng.IntN(20), rng.IntN(5)},
			Seed:          uint64(i),
		}
		lq := queries[i%9]
		if cfg.Dim == 768 {
			cfg.Lengths, lq = []int{rng.IntN(40), 1}, min(lq, 33)
		}
		t.Run(fmt.Sprintf("%d/d=%d/n=%d/Lq=%d", i, cfg.Dim, cfg.Nbits, lq), func(t *testing.T) {
			c := kerneltest.New(cfg)
			if i%7 == 6 { // a damaged index
				for tok := range c.Chunk.Tokens() {
					kerneltest.SetFactor(c.Chunk, tok, int16(rng.IntN(1<<16)-1<<15))
				}
			}
			vectors := c.Query(lq)
			var weights []float32
			if low := float32(i%3 - 1); i%4 == 3 {
				weights = c.Weights(lq, low, 2)
			}
			want := resultsOf(t, generic(t), c, vectors, weights)
			for _, b := range tiers {
				requireAgree(t, want, resultsOf(t, b, c, vectors, weights))
			}
		})
	}
	t.Run("long", func(t *testing.T) {
		k := 3000
		if effort.Brief() {
			k = 100
		}
		c := kerneltest.New(kerneltest.Config{Lengths: []int{9, 5000, 0, 4096, 4097, 3}, K: k})
		vectors := c.Query(33)
		want := resultsOf(t, generic(t), c, vectors, nil)
		for _, b := range tiers {
			requireAgree(t, want, resultsOf(t, b, c, vectors, nil))
		}
	})
}

// TestTiersSameBitsOfCancellingWeights: where the parts of a score cancel, its last
// bits are all there is, so that every tier has to add up in the same order.
func TestTiersSameBitsOfCancellingWeights(t *testing.T) {
	tiers := otherTiers(t)
	if len(tiers) == 0 {
		t.Skip("this processor runs the portable backend only")
	}
	for _, n := range []int{9, 17, 33, 65} {
		for nbits := 1; nbits <= 8; nbits *= 2 {
			for _, table := range []bool{false, true} {
				c := kerneltest.New(kerneltest.Config{Dim: 24, Nbits: nbits, K: 40, Table: table, Lengths: []int{30, 0, 7, 100}, Seed: uint64(n)})
				vectors, weights := c.Query(n), c.Weights(n, .1, 2)
				for i := n - 1; i >= 0; i-- { // each token again, with the opposite weight
					vectors = append(vectors, vectors[i*c.Dim:(i+1)*c.Dim]...)
					weights = append(weights, -weights[i])
				}
				want := resultsOf(t, generic(t), c, vectors, weights)
				for _, b := range tiers {
					requireAgree(t, want, resultsOf(t, b, c, vectors, weights))
				}
			}
		}
	}
}

// TestTiersSameNearest: and the same nearest centroids, ties and products
// included.
func TestTiersSameNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	dims, ks := []int{1, 3, 16, 63, 100, 128, 256}, []int{1, 5, 70, 600, 1031}
	if effort.Brief() {
		dims, ks = []int{1, 63, 128}, []int{1, 70, 600}
	}
	for _, b := range otherTiers(t) {
		for _, dim := range dims {
			for _, k := range ks {
				centroids := kerneltest.UnitVectors(rng, k, dim)
				copy(centroids[k/2*dim:], centroids[:k/3*dim]) // ties
				for _, rows := range []int{1, 7, 40, 131} {
					x := kerneltest.UnitVectors(rng, rows, dim)
					for i := range rows / 2 {
						for j := range dim {
							x[i*dim+j] += 2 * centroids[i*7%k*dim+j]
						}
					}
					clear(x[rows/2*dim : (rows/2+1)*dim])
					x[len(x)-1] *= 1000 // an outlier dimension
					want, got := make([]uint32, rows), make([]uint32, rows)
					wantScore, gotScore := make([]float32, rows), make([]float32, rows)
					require.NoError(t, generic(t).Nearest(context.Background(), want, wantScore, centroids, x, dim))
					require.NoError(t, b.Nearest(context.Background(), got, gotScore, centroids, x, dim))
					require.Equal(t, want, got, "%s d=%d K=%d rows=%d", b.Name(), dim, k, rows)
					require.Equal(t, wantScore, gotScore, "%s d=%d K=%d rows=%d", b.Name(), dim, k, rows)
					require.NoError(t, b.Nearest(context.Background(), got, nil, centroids, x, dim))
					require.Equal(t, want, got)
				}
			}
		}
	}
}

// TestNearestScales: however short or long rows and centroids are, the nearest
// centroid does not depend on the tier, nor on how many rows a call has.
func TestNearestScales(t *testing.T) {
	for _, exps := range [][2]int{
		{-44, 0}, {-40, 0}, {-36, 0}, {-32, 0}, {-28, 0}, {-24, 0}, {-22, 0}, {-16, 0}, {-12, 0}, {-8, 0}, {0, 0}, {16, 0}, {30, 0}, {37, 0},
		{0, -44}, {0, -36}, {0, -32}, {0, -28}, {0, -22}, {0, -16}, {0, -12}, {0, -8}, {0, 14}, {0, 16}, {0, 36},
		{-22, -20}, {-18, -18}, {-20, -20}, {-16, -16}, {-14, -14}, {-12, -12}, {-10, -10}, {-9, -9}, {-8, -8}, {-30, 14}, {-24, 14}, {20, -9}, {18, 18},
	} {
		for _, shape := range [][2]int{{8, 600}, {64, 100}} {
			dim, k := shape[0], shape[1]
			if effort.Brief() && dim > 8 {
				continue
			}
			rng := rand.New(rand.NewPCG(9, uint64(exps[0]+100)))
			centroids, x := kerneltest.UnitVectors(rng, k, dim), kerneltest.UnitVectors(rng, 64, dim)
			for j := range x {
				x[j] *= float32(math.Pow(10, float64(exps[0])))
			}
			for j := range centroids {
				centroids[j] *= float32(math.Pow(10, float64(exps[1])))
			}
			requireNearest(t, centroids, x, dim, "rows of 1e%d, centroids of 1e%d", exps[0], exps[1])
		}
	}
}

// TestNearestErrorsOfRowsAlone: where centroids are rounded without an error, all that
// a margin is made of are the errors of the rows, whose squares are lost at 1e-9².
func TestNearestErrorsOfRowsAlone(t *testing.T) {
	const k, rows, dim = 500, 640, 64
	rng := rand.New(rand.NewPCG(9, 2))
	centroids, x := kerneltest.UnitVectors(rng, k, dim), kerneltest.UnitVectors(rng, rows, dim)
	for j := range x {
		x[j] *= 1e-9
	}
	for j, v := range centroids {
		centroids[j] = float32(math.Copysign(1e-9/8, float64(v)))
	}
	requireNearest(t, centroids, x, dim, "errors of rows alone")
}

// requireNearest holds every backend to the answers for one row at a time, for which
// every product is computed.
func requireNearest(t *testing.T, centroids, x []float32, dim int, format string, args ...any) {
	t.Helper()
	rows := len(x) / dim
	want, got := make([]uint32, rows), make([]uint32, rows)
	wantScores, scores := make([]float32, rows), make([]float32, rows)
	for r := range rows {
		require.NoError(t, generic(t).Nearest(context.Background(), want[r:r+1], wantScores[r:r+1], centroids, x[r*dim:(r+1)*dim], dim))
	}
	for _, b := range append(otherTiers(t), generic(t)) {
		require.NoError(t, b.Nearest(context.Background(), got, scores, centroids, x, dim))
		name := fmt.Sprintf("%s d=%d K=%d, %s", b.Name(), dim, len(centroids)/dim, fmt.Sprintf(format, args...))
		require.Equal(t, want, got, name)
		require.Equal(t, wantScores, scores, name)
	}
}

// NaN has no place in centroids; if there is one anyway, it is no one's nearest,
// wherever in the array it is.
func TestTiersPassOverNaNCentroids(t *testing.T) {
	const k, dim, rows = 4000, 64, 64
	rng := rand.New(rand.NewPCG(4, 9))
	centroids := kerneltest.UnitVectors(rng, k, dim)
	for c := range 300 {
		centroids[c*dim+c%dim] = float32(math.NaN())
	}
	x := kerneltest.UnitVectors(rng, rows, dim)
	want, got := make([]uint32, rows), make([]uint32, rows)
	require.NoError(t, generic(t).Nearest(context.Background(), want, nil, centroids, x, dim))
	for _, c := range want {
		require.GreaterOrEqual(t, c, uint32(300))
	}
	for _, b := range otherTiers(t) {
		require.NoError(t, b.Nearest(context.Background(), got, nil, centroids, x, dim))
		require.Equal(t, want, got, b.Name())
	}
}

// TestTiersStress: many goroutines with stacks that grow and a garbage
// collector that never rests.
func TestTiersStress(t *testing.T) {
	c := kerneltest.New(kerneltest.Config{Lengths: []int{30, 100, 64, 1, 0, 7}, K: 100})
	x := kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 9)), 64, c.Dim)
	centroids := kerneltest.UnitVectors(rand.New(rand.NewPCG(2, 9)), 600, c.Dim)
	vectors := c.Query(33)
	rounds := 6
	if effort.Brief() {
		rounds = 2
	}
	for _, b := range otherTiers(t) {
		want, first := resultsOf(t, generic(t), c, vectors, nil), resultsOf(t, b, c, vectors, nil)
		codes := make([]uint32, 64)
		require.NoError(t, generic(t).Nearest(context.Background(), codes, nil, centroids, x, c.Dim))
		done := make(chan struct{})
		var wg, gc sync.WaitGroup
		gc.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					runtime.GC()
				}
			}
		})
		for range 8 {
			wg.Go(func() {
				for range rounds {
					r := resultsOf(t, b, c, vectors, nil)
					requireAgree(t, want, r)
					require.Equal(t, first, r)
					got := make([]uint32, 64)
					require.NoError(t, b.Nearest(context.Background(), got, nil, centroids, x, c.Dim))
					require.Equal(t, codes, got)
				}
			})
		}
		wg.Wait()
		close(done)
		gc.Wait()
	}
}

// TestSelectTier covers the choice of a tier.
func TestSelectTier(t *testing.T) {
	t.Setenv(kernels.EnvCPU, "")
	r, err := cpu.Describe("")
	require.NoError(t, err)
	require.Equal(t, r.Tiers[len(r.Tiers)-1], r.Selected)
	require.Len(t, r.Stages, 5)
	require.Contains(t, r.String(), r.Selected)
	for _, name := range r.Tiers {
		b, err := kernels.Select(name)
		require.NoError(t, err)
		require.Equal(t, name, b.Name())
	}
	_, err = cpu.Describe("sse9")
	require.ErrorIs(t, err, kernels.ErrUnavailable)
}

// TestRequired fails if the tier that PLAID_REQUIRE names is not the one in use
// or a stage of it uses other loops than it should, so that a run meant for a tier cannot pass
// without it.
func TestRequired(t *testing.T) {
	want := os.Getenv("PLAID_REQUIRE")
	if want == "" {
		t.Skip("PLAID_REQUIRE names no tier")
	}
	t.Setenv(kernels.EnvCPU, want)
	r, err := cpu.Describe("")
	require.NoError(t, err)
	require.Equal(t, want, r.Selected)
	for _, s := range r.Stages {
		loops := want
		switch {
		case s.Stage == "approximate score" && (want == "avx512" || want == "amx"):
			loops = "avx2" // by choice: a row is 32 bytes
		case s.Stage == "centroid scores" && want == "amx":
			loops = "avx512" // float32
		}
		require.True(t, strings.HasPrefix(s.Uses, loops), "%s uses %s", s.Stage, s.Uses)
	}
}
