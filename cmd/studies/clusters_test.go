package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
)

func TestShares(t *testing.T) {
	require.Equal(t, []int{6, 1, 3, 2}, shares([]float64{60, 0.1, 30, 20}, 12))
	require.Equal(t, []int{1, 1, 1}, shares([]float64{5, 1, 0}, 3))
}

// TestClusteredCodec: centroids of the codec are the means of the clusters that each group
// of vectors was parted into.
func TestClusteredCodec(t *testing.T) {
	const n, dim = 9000, 16
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n*dim)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	codec.Normalize(x, dim)
	backend, err := kernels.Select("")
	require.NoError(t, err)
	c := newClusters(x, dim, backend)
	rows := make([]uint32, n)
	for i := range rows {
		rows[i] = uint32(i)
	}
	groups, ks := [][]uint32{rows[:2000], rows[2000:]}, []int{5, 12}
	require.NoError(t, c.within(t.Context(), groups, ks))
	q, r, err := c.train(t.Context())
	require.NoError(t, err)
	require.Equal(t, 17, r.K)
	require.Zero(t, r.Reseeded)
	means := make([]float32, 17*dim)
	for i, code := range c.codes {
		require.Equal(t, i >= 2000, code >= 5)
		for j, v := range x[i*dim:][:dim] {
			means[int(code)*dim+j] += v
		}
	}
	codec.Normalize(means, dim)
	require.InDeltaSlice(t, means, q.Centroids(), 0.004) // rounded to bfloat16
	before := sum(c.scores)
	require.NoError(t, c.round(t.Context()))
	require.Greater(t, sum(c.scores), before)
}

func sum(x []float32) (s float64) {
	for _, v := range x {
		s += float64(v)
	}
	return s
}
