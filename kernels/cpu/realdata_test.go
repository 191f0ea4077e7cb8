package cpu_test

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/kernels"
)

// tokenVectors reads every step-th of the real token vectors (float16,
// dimension 128), n of them.
func tokenVectors(t testing.TB, n, step int) []float32 {
	t.Helper()
	const dim = 128
	f, err := os.Open(realdata.Path(t, "data", "cranfield", "vectors", "docs.npy"))
	require.NoError(t, err)
	defer f.Close()
	head := make([]byte, 10)
	_, err = io.ReadFull(f, head)
	require.NoError(t, err)
	start := 10 + int64(binary.LittleEndian.Uint16(head[8:])) // npy version 1
	x := make([]float32, n*dim)
	row := make([]byte, 2*dim)
	for i := range n {
		_, err := f.ReadAt(row, start+int64(i*step*2*dim))
		require.NoError(t, err)
		for j := range dim {
			x[i*dim+j] = kernels.F16ToF32(binary.LittleEndian.Uint16(row[2*j:]))
		}
	}
	return x
}

// clustered returns k centroids after a few rounds of spherical k-means.
func clustered(t testing.TB, x []float32, k, dim, rounds int) []float32 {
	n := len(x) / dim
	rng := rand.New(rand.NewPCG(1, 2))
	centroids := make([]float32, 0, k*dim)
	for _, i := range rng.Perm(n)[:k] {
		centroids = append(centroids, x[i*dim:(i+1)*dim]...)
	}
	codes := make([]uint32, n)
	for range rounds {
		require.NoError(t, generic(t).Nearest(context.Background(), codes, nil, centroids, x, dim))
		sums := make([]float32, k*dim)
		for i, c := range codes {
			for j := range dim {
				sums[int(c)*dim+j] += x[i*dim+j]
			}
		}
		for c := range k {
			var norm float64
			for _, v := range sums[c*dim : (c+1)*dim] {
				norm += float64(v) * float64(v)
			}
			if norm == 0 {
				continue
			}
			for j := range dim {
				centroids[c*dim+j] = float32(float64(sums[c*dim+j]) / math.Sqrt(norm))
			}
		}
	}
	return centroids
}

func BenchmarkNearestRealVectors(b *testing.B) { eachTier(b, benchNearestRealVectors) }

func benchNearestRealVectors(b *testing.B, be kernels.Backend) {
	const dim, k = 128, 4096
	x := tokenVectors(b, 16384, 14)
	centroids := clustered(b, x, k, dim, 2)
	for _, rows := range []int{64, 4096} {
		codes := make([]uint32, rows)
		b.Run("rows="+map[int]string{64: "64", 4096: "4096"}[rows], func(b *testing.B) {
			for range b.N {
				_ = be.Nearest(context.Background(), codes, nil, centroids, x[:rows*dim], dim)
			}
			gflops(b, rows*k*dim)
		})
	}
}
