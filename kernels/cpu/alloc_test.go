//go:build !race

package cpu_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

// TestNoAllocations: once warm, nothing allocates, new contents of a query
// included. (The race detector makes pools forget on purpose.)
func TestNoAllocations(t *testing.T) {
	for _, name := range kernels.Backends() {
		b, err := kernels.Select(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) { testNoAllocations(t, b) })
	}
	t.Run("tiles", func(t *testing.T) { testNoAllocations(t, anyDim{cpu.TilesInGo(1)}) })
}

func testNoAllocations(t *testing.T, b kernels.Backend) {
	const runs = 3 // their mean, rounded down: what the runtime allocates meanwhile does not count
	for _, cfg := range []kerneltest.Config{
		{K: 300, Lengths: []int{5, 70, 0, 3}},
		{K: 300, Lengths: []int{5, 70, 0, 3}, Nbits: 8, Table: true, CentroidScale: true, CodeBytes: 2},
		{K: 300, Lengths: []int{5, 9}, Nbits: 8, Dim: 600}, // without tables
	} {
		c := kerneltest.New(cfg)
		s, err := b.Scorer(c.Codec)
		require.NoError(t, err)
		for _, low := range []float32{0, -1} {
			vectors, weights := c.Query(9), c.Weights(9, low, 1)
			qs := []kernels.Query{s.NewQuery(), s.NewQuery()}
			dst, docs := make([]float32, c.Chunk.Docs()), []uint32{1, 0}
			require.Zero(t, testing.AllocsPerRun(runs, func() {
				for _, q := range qs {
					kerneltest.Prepare(t, q, c.K, vectors, weights)
					q.Approx(dst, c.Chunk, nil)
					q.Approx(dst, c.Chunk, docs)
				}
				for _, level := range []kernels.Level{kernels.Fast, kernels.Fine} {
					for _, q := range qs {
						q.MaxSim(dst, c.Chunk, nil, level)
						q.MaxSim(dst, c.Chunk, docs, level)
						q.ErrorBound(level)
						q.Shortfall(kernels.Bound(level))
					}
				}
			}))
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	x, centroids := kerneltest.UnitVectors(rng, 70, 64), kerneltest.UnitVectors(rng, 600, 64)
	codes, scores := make([]uint32, 70), make([]float32, 70)
	require.Zero(t, testing.AllocsPerRun(runs, func() {
		_ = b.Nearest(context.Background(), codes, scores, centroids, x, 64)
		_ = b.Nearest(context.Background(), codes[:5], nil, centroids, x[:5*64], 64)
	}))
}
