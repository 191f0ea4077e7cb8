package nearest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// Codes and products of the GPU are those of the processor, to the bit, also where
// centroids are nearly as near, or there twice.
func TestGPUNearest(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(8, 8))
	for _, dim := range []int{32, 64, 96, 128, 200} {
		k, n := 3000, 20000
		centroids, x := kerneltest.UnitVectors(rng, k, dim), kerneltest.UnitVectors(rng, n, dim)
		copy(centroids[(k-400)*dim:], centroids[:200*dim])
		for i := range 100 * dim {
			centroids[(k-200)*dim+i] = centroids[i] * (1 + float32(rng.NormFloat64())*1e-7)
		}
		want, got := make([]uint32, n), make([]uint32, n)
		wantScores, scores := make([]float32, n), make([]float32, n)
		require.NoError(t, cpu.Nearest(ctx, want, wantScores, centroids, x, dim))
		b := NewBuilder(d, cpu)
		require.NoError(t, b.Nearest(ctx, got, scores, centroids, x, dim))
		require.Equal(t, want, got, "dimension %d", dim)
		require.Equal(t, wantScores, scores, "dimension %d", dim)
	}
}

// Rows that many centroids are as near to, as far as half precision tells, get the nearest all the
// same: of a few sets, of as many as are listed, and of more.
func TestGPUNearestInDoubt(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(18, 8))
	for _, dim := range []int{16, 64, 100, 128} {
		for _, groups := range []int{1000, 100, 20, 5} {
			k, n := 3000, 3000
			base := kerneltest.UnitVectors(rng, groups, dim)
			near := func(n int, noise float64) []float32 {
				x := make([]float32, 0, n*dim)
				for range n {
					g := rng.IntN(groups)
					for _, v := range base[g*dim : (g+1)*dim] {
						x = append(x, v+float32(noise*rng.NormFloat64()))
					}
				}
				return x
			}
			centroids, x := near(k, 2e-5), near(n, 1e-2)
			want, got := make([]uint32, n), make([]uint32, n)
			wantScores, scores := make([]float32, n), make([]float32, n)
			require.NoError(t, cpu.Nearest(ctx, want, wantScores, centroids, x, dim))
			require.NoError(t, NewBuilder(d, cpu).Nearest(ctx, got, scores, centroids, x, dim))
			require.Equal(t, want, got, "dimension %d, %d groups", dim, groups)
			require.Equal(t, wantScores, scores, "dimension %d, %d groups", dim, groups)
		}
	}
}

// Tokens that the GPU encodes have the bits of the processor.
func TestGPUTokens(t *testing.T) {
	effort.SkipBrief(t, "the processor's side takes a minute, on one goroutine")
	d := runtimetest.OpenGPU(t)
	rng := rand.New(rand.NewPCG(uint64(runtimetest.Env("PLAID_GPU_SEED", 1)), 9))
	for i := range runtimetest.Env("PLAID_GPU_SHAPES", 60) {
		dim := []int{1, 3, 32, 48, 64, 96, 100, 128, 128, 128, 130, 200, 384, 1024, 4096}[i%15]
		n := 1 + rng.IntN(4000)
		if dim > 200 {
			n = 1 + rng.IntN(200)
		}
		requireSameTokens(t, d, rng, dim, []int{1, 2, 2, 4, 8}[rng.IntN(5)], 1+rng.IntN(2000), n)
	}
	requireSameTokens(t, d, rng, 128, 2, 4096, maxRows+1000)
}

// An index that is built on the GPU is that of the processor, to the bit.
func TestGPUSameIndex(t *testing.T) {
	effort.SkipBrief(t, "the processor's side takes a minute, on one goroutine")
	d := runtimetest.OpenGPU(t)
	for _, dim := range []int{48, 64, 128, 160} {
		requireSameIndex(t, d, dim, 2000, 40)
	}
}

// Vectors that lie on the GPU are trained on and encoded as the processor does it, to the bit.
func TestGPUResident(t *testing.T) {
	effort.SkipBrief(t, "the processor's side takes a minute, on one goroutine")
	d := runtimetest.OpenGPU(t)
	for seed, shape := range [][3]int{{8, 900, 70}, {3, 40, 40}, {128, 6000, 300}, {96, 5000, 2000}, {200, 2000, 16}, {16, 2, 1}} {
		requireSameResidentTraining(t, d, uint64(seed), shape[0], shape[1], shape[2])
	}
	rng := rand.New(rand.NewPCG(12, 9))
	for _, dim := range []int{1, 3, 64, 100, 128, 130} {
		requireSameResidentTokens(t, d, rng, dim, []int{1, 2, 2, 4, 8}[rng.IntN(5)], 1+rng.IntN(2000), 1+rng.IntN(4000))
	}
	requireSameResidentTokens(t, d, rng, 128, 2, 512, maxRows+1000)
}

func BenchmarkGPUTokens(b *testing.B) {
	d := runtimetest.OpenGPU(b)
	cpu, err := kernels.Select("")
	require.NoError(b, err)
	for _, k := range []int{1024, 65536} {
		q, x := sample(rand.New(rand.NewPCG(8, 8)), 128, 2, k, maxRows)
		e, release, err := NewBuilder(d, cpu).(kernels.EncoderPreparer).PrepareEncoder(ctx, q.Kernel(), q.Centroids(), true)
		require.NoError(b, err)
		to := kernels.EncodedTokens{
			Codes: make([]uint32, maxRows), Residuals: make([]byte, maxRows*q.RowBytes()), Factors: make([]int16, maxRows), Errors: make([]float64, maxRows),
		}
		require.NoError(b, e.EncodeTokens(ctx, to, x))
		b.Run(fmt.Sprint("K=", k), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, e.EncodeTokens(ctx, to, x))
			}
			b.ReportMetric(maxRows*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
		})
		release()
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

// A codec that is trained with the rows on the GPU is that of the processor, to the bit.
func TestGPUTraining(t *testing.T) {
	effort.SkipBrief(t, "the processor's side takes a minute, on one goroutine")
	d := runtimetest.OpenGPU(t)
	for seed, shape := range [][3]int{{1, 50, 3}, {3, 4000, 100}, {48, 9000, 700}, {64, 20000, 300}, {128, 70000, 900}, {160, 5000, 64}, {1024, 900, 20}, {4096, 100, 5}} {
		requireSameTraining(t, d, uint64(seed), shape[0], shape[1], shape[2], 0, 8)
	}
}

func BenchmarkGPUTraining(b *testing.B) {
	d := runtimetest.OpenGPU(b)
	cpu, err := kernels.Select("")
	require.NoError(b, err)
	const k, n, dim = 16384, 1_200_000, 128
	x := kerneltest.UnitVectors(rand.New(rand.NewPCG(8, 8)), n, dim)
	for _, kept := range []bool{true, false} {
		var backend kernels.Backend = NewBuilder(d, cpu)
		if !kept {
			backend = struct{ kernels.Builder }{backend.(kernels.Builder)} // that keeps nothing
		}
		b.Run(fmt.Sprint("kept=", kept), func(b *testing.B) {
			for b.Loop() {
				_, _, err := codec.Train(ctx, x, dim, codec.TrainOptions{K: k, Backend: backend, Threads: 64})
				require.NoError(b, err)
			}
		})
	}
}
