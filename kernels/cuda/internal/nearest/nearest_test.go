package nearest

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident/residenttest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

var ctx = context.Background()

// fakeKernels do in Go what the kernels do, on the arrays of plaid.cuh.
func fakeKernels() map[string]drivertest.Kernel {
	nothing := func(*drivertest.Fake, *driver.Launch) {}
	return map[string]drivertest.Kernel{
		"to_half": toHalf, "nearest64": nothing, "nearest128": nothing, "nearest_exact": nearestRows, "nearest_any": nearestRows,
		"nearest_again64": nothing, "nearest_again128": nothing, "nearest_doubts": nothing,
		"scale_rows": scaleRows, "encode_tokens": encodeTokens, "cluster_means": clusterMeans, "cluster_sums": clusterSums,
		"gather_rows": residenttest.Gather,
	}
}

func toHalf(f *drivertest.Fake, l *driver.Launch) {
	p := (*halfParams)(l.Args)
	out := drivertest.Slice[uint16](f, p.out, int(p.rows*p.width))
	clear(out)
	for i := range int(p.n) {
		row := make([]float32, p.dim)
		if p.in != 0 {
			copy(row, drivertest.Slice[float32](f, p.in+driver.Ptr(4*i*int(p.dim)), int(p.dim)))
		} else {
			from := i
			if p.numbers != 0 {
				from = int(drivertest.Slice[uint32](f, p.numbers, int(p.n))[i])
			}
			for j, h := range drivertest.Slice[uint16](f, p.halves+driver.Ptr(2*from*int(p.dim)), int(p.dim)) {
				row[j] = kernels.F16ToF32(h)
			}
		}
		drivertest.Slice[float32](f, p.norms+driver.Ptr(4*i), 1)[0] = square(row)
		drivertest.Slice[float32](f, p.errors+driver.Ptr(4*i), 1)[0] = 0
	}
}

func nearestRows(f *drivertest.Fake, l *driver.Launch) {
	p := (*nearestParams)(l.Args)
	x := drivertest.Slice[float32](f, p.x, int(p.n*p.dim))
	c := drivertest.Slice[float32](f, p.centroids, int(p.k*p.dim))
	cpu, _ := kernels.Select("") // products of the device are those of the processor
	_ = cpu.Nearest(ctx, drivertest.Slice[uint32](f, p.codes, int(p.n)), drivertest.Slice[float32](f, p.scores, int(p.n)), c, x, int(p.dim))
}

func square(v []float32) (sum float32) {
	for _, x := range v {
		sum += x * x
	}
	return sum
}

func TestNearestOnDevice(t *testing.T) {
	f := runtimetest.Fake(fakeKernels())
	d := runtimetest.OpenFake(t, f)
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, dim := range []int{16, 100, 128, 200} {
		centroids, x := kerneltest.UnitVectors(rng, 70, dim), kerneltest.UnitVectors(rng, 300, dim)
		want, _ := kernels.OracleNearest(centroids, x, dim)
		b := NewBuilder(d, cpu)
		p, release, err := kernels.Prepare(ctx, b, centroids, dim)
		require.NoError(t, err)
		var wg sync.WaitGroup
		codes, scores := make([]uint32, 300), make([]float32, 300)
		for lo := 0; lo < 300; lo += 50 {
			wg.Go(func() {
				if err := p.Nearest(ctx, codes[lo:lo+50], scores[lo:lo+50], centroids, x[lo*dim:(lo+50)*dim], dim); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		release()
		require.Equal(t, want, codes)
		f.Fail = func(op string) driver.Result {
			if op == "cuLaunchKernel" {
				return driver.OutOfMemory
			}
			return driver.Success
		}
		err = b.Nearest(ctx, codes, nil, centroids, x, dim)
		require.ErrorIs(t, err, driver.ErrOutOfMemory, "the processor does not stand in")
		require.ErrorContains(t, err, "nearest centroids on cuda:0")
		f.Fail = nil
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, b.Nearest(canceled, codes, nil, centroids, x, dim), context.Canceled)
		require.NoError(t, b.Nearest(ctx, codes, nil, centroids, x, dim), "the device goes on")
	}
}

// Rows that the device has no centroid for, because a component is too large for half
// precision, are the processor's, wherever they lie.
func TestRowsBeyondHalfPrecision(t *testing.T) {
	const k, n, dim = 30, 700, 64
	fakes := fakeKernels()
	fakes["nearest_exact"] = func(f *drivertest.Fake, l *driver.Launch) {
		nearestRows(f, l)
		p := (*nearestParams)(l.Args)
		x := drivertest.Slice[float32](f, p.x, int(p.n*p.dim))
		for i := range int(p.n) {
			if slices.ContainsFunc(x[i*dim:(i+1)*dim], func(v float32) bool { return max(v, -v) > 65504 }) {
				drivertest.Slice[uint32](f, p.codes, int(p.n))[i] = math.MaxUint32
				drivertest.Slice[float32](f, p.scores, int(p.n))[i] = float32(math.Inf(-1))
			}
		}
	}
	d := runtimetest.OpenFake(t, runtimetest.Fake(fakes))
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(6, 55))
	centroids := kerneltest.UnitVectors(rng, k, dim)
	for _, large := range [][]int{{}, {0}, {n - 1}, {3, 4, 5, 9, n - 2, n - 1}, nil} {
		x := kerneltest.UnitVectors(rng, n, dim)
		if large == nil {
			for i := range n {
				large = append(large, i)
			}
		}
		for _, i := range large {
			x[i*dim+i%dim] = 70000
		}
		want, products := kernels.OracleNearest(centroids, x, dim)
		codes, scores := make([]uint32, n), make([]float32, n)
		require.NoError(t, NewBuilder(d, cpu).Nearest(ctx, codes, scores, centroids, x, dim))
		require.Equal(t, want, codes)
		for i, s := range scores {
			require.InEpsilon(t, products[i], s, 1e-5, "row %d", i)
		}
		clear(codes)
		require.NoError(t, NewBuilder(d, cpu).Nearest(ctx, codes, nil, centroids, x, dim))
		require.Equal(t, want, codes)
	}
}

// failInTurn demands that whatever call of the driver fails, work tells the error, what was
// given out is given back, and the device goes on. There are at least so many calls.
func failInTurn(t *testing.T, least int, work func(d *runtime.Device) error) {
	t.Helper()
	for n := 1; ; n++ {
		f := runtimetest.Fake(fakeKernels())
		f.Memory = 32 << 20
		d := runtimetest.OpenFake(t, f)
		calls := 0
		f.Fail = func(op string) driver.Result {
			if calls++; calls == n && op != "cuMemFree" && op != "cuMemFreeHost" && op != "cuEventDestroy" {
				return driver.OutOfMemory
			}
			return driver.Success
		}
		if err := work(d); err != nil {
			require.ErrorIs(t, err, driver.ErrOutOfMemory, "call %d", n)
			require.ErrorContains(t, err, "cuda:0")
			require.NoError(t, work(d), "call %d", n)
		}
		live := d.Live()
		require.Zero(t, live.Allocations, "call %d", n)
		require.Zero(t, live.HostAllocations, "call %d", n)
		f.Fail = nil // what closing calls must not fail
		if calls < n {
			require.Greater(t, n, least)
			return
		}
	}
}

func TestEveryCallFailsInTurn(t *testing.T) {
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, dim := range []int{64, 200} {
		centroids, x := kerneltest.UnitVectors(rng, 30, dim), kerneltest.UnitVectors(rng, 20, dim)
		codes := make([]uint32, 20)
		failInTurn(t, 10, func(d *runtime.Device) error { return NewBuilder(d, cpu).Nearest(ctx, codes, nil, centroids, x, dim) })
	}
}

// Once the workspace is large enough, a call of Nearest is these calls of the
// driver.
func TestNearestMakesFewCalls(t *testing.T) {
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	f := runtimetest.Fake(fakeKernels())
	rng := rand.New(rand.NewPCG(1, 1))
	centroids, x := kerneltest.UnitVectors(rng, 30, 64), kerneltest.UnitVectors(rng, 20, 64)
	p, release, err := NewBuilder(runtimetest.OpenFake(t, f), cpu).Prepare(ctx, centroids, 64)
	require.NoError(t, err)
	defer release()
	codes := make([]uint32, 20)
	require.NoError(t, p.Nearest(ctx, codes, nil, centroids, x, 64))
	calls := map[string]int{}
	f.Fail = func(op string) driver.Result { calls[op]++; return driver.Success }
	require.NoError(t, p.Nearest(ctx, codes, nil, centroids, x, 64))
	require.Equal(t, map[string]int{"cuMemcpyHtoDAsync": 1, "cuLaunchKernel": 5, "cuMemcpyDtoHAsync": 1, "cuStreamSynchronize": 1}, calls)
}

// After an error nothing of the call is left to be done: the device is waited for.
func TestErrorsWaitForTheDevice(t *testing.T) {
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	f := runtimetest.Fake(fakeKernels())
	x := kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 1)), 20, 64)
	p, release, err := NewBuilder(runtimetest.OpenFake(t, f), cpu).Prepare(ctx, x, 64)
	require.NoError(t, err)
	defer release()
	after := runtimetest.FailAt(f, "cuMemcpyDtoHAsync")
	require.ErrorIs(t, p.Nearest(ctx, make([]uint32, 20), nil, x, x, 64), driver.ErrOutOfMemory)
	require.Equal(t, []string{"cuStreamSynchronize", "cuStreamSynchronize"}, after(), "both streams")
}
