package nearest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/kerneltest"
)

// Codes of the GPU are those of the processor, except where two centroids are
// as near.
func TestGPUNearest(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(8, 8))
	for _, dim := range []int{32, 64, 96, 128, 200} {
		k, n := 3000, 20000
		centroids, x := kerneltest.UnitVectors(rng, k, dim), kerneltest.UnitVectors(rng, n, dim)
		want, got := make([]uint32, n), make([]uint32, n)
		wantScores, scores := make([]float32, n), make([]float32, n)
		require.NoError(t, cpu.Nearest(ctx, want, wantScores, centroids, x, dim))
		b := NewBuilder(d, cpu)
		require.NoError(t, b.Nearest(ctx, got, scores, centroids, x, dim))
		differ := 0
		for i := range got {
			require.InDelta(t, wantScores[i], scores[i], 1e-5)
			if got[i] != want[i] {
				differ++
				var p, q float64
				for j := range dim {
					p += float64(centroids[int(got[i])*dim+j]) * float64(x[i*dim+j])
					q += float64(centroids[int(want[i])*dim+j]) * float64(x[i*dim+j])
				}
				require.InDelta(t, q, p, 1e-6, "row %d", i)
			}
		}
		t.Logf("dimension %d: %d of %d codes differ", dim, differ, n)
	}
}

func BenchmarkGPUNearest(b *testing.B) {
	d := runtimetest.OpenGPU(b)
	cpu, err := kernels.Select("")
	require.NoError(b, err)
	rng := rand.New(rand.NewPCG(8, 8))
	const k, n, dim = 65536, 65536, 128
	centroids, x := kerneltest.UnitVectors(rng, k, dim), kerneltest.UnitVectors(rng, n, dim)
	p, release, err := kernels.Prepare(ctx, NewBuilder(d, cpu), centroids, dim)
	require.NoError(b, err)
	defer release()
	codes := make([]uint32, n)
	require.NoError(b, p.Nearest(ctx, codes, nil, centroids, x, dim))
	for b.Loop() {
		require.NoError(b, p.Nearest(ctx, codes, nil, centroids, x, dim))
	}
	b.ReportMetric(2*k*n*dim*float64(b.N)/b.Elapsed().Seconds()/1e12, "Tflop/s")
}
