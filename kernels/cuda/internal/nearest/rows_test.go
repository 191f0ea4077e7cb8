package nearest

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// clusters calls use with the rows of each centroid, as kernels read them.
func clusters(f *drivertest.Fake, l *driver.Launch, use func(to []float32, rows [][]float32)) {
	p := (*meansParams)(l.Args)
	k, dim := int(p.k), int(p.dim)
	if int(l.Grid.X) != k || int(l.Shared) != 8*dim {
		panic("the launch does not fit its centroids")
	}
	starts := drivertest.Slice[uint32](f, p.starts, k+1)
	order := drivertest.Slice[uint32](f, p.order, int(starts[k]))
	for c := range k {
		var rows [][]float32
		for _, r := range order[starts[c]:starts[c+1]] {
			if p.x != 0 {
				rows = append(rows, drivertest.Slice[float32](f, p.x+driver.Ptr(4*int(r)*dim), dim))
				continue
			}
			number := drivertest.Slice[uint32](f, p.numbers+driver.Ptr(4*r), 1)[0]
			by := drivertest.Slice[float64](f, p.by+driver.Ptr(8*r), 1)[0]
			row := make([]float32, dim)
			for j, h := range drivertest.Slice[uint16](f, p.halves+driver.Ptr(2*int(number)*dim), dim) {
				row[j] = float32(float64(kernels.F16ToF32(h)) * by)
			}
			rows = append(rows, row)
		}
		use(drivertest.Slice[float32](f, p.centroids+driver.Ptr(4*c*dim), dim), rows)
	}
}

// clusterMeans is the kernel, on the arrays of plaid.cuh.
func clusterMeans(f *drivertest.Fake, l *driver.Launch) {
	clusters(f, l, func(to []float32, rows [][]float32) {
		sum := make([]float64, len(to))
		for _, row := range rows {
			for j, v := range row {
				sum[j] += float64(v)
			}
		}
		var n2 float64
		for _, s := range sum {
			n2 += float64(s * s)
		}
		if n := math.Sqrt(n2); n > 1e-12*float64(len(rows)) {
			for j, s := range sum {
				to[j] = float32(s / n)
			}
		}
	})
}

// clusterSums is the kernel.
func clusterSums(f *drivertest.Fake, l *driver.Launch) {
	clusters(f, l, func(to []float32, rows [][]float32) {
		clear(to)
		for _, row := range rows {
			for j, v := range row {
				to[j] += v
			}
		}
	})
}

// training is vectors that leave centroids without rows and sums that cancel: many are there
// several times, some with the other sign, some are zero.
func training(rng *rand.Rand, n, dim int) []float32 {
	x := kerneltest.UnitVectors(rng, n, dim)
	for i := 1; i < n; i++ {
		row, other := x[i*dim:(i+1)*dim], x[rng.IntN(i)*dim:]
		switch rng.IntN(8) {
		case 0:
			clear(row)
		case 1, 2, 3:
			copy(row, other)
		case 4:
			for j := range row {
				row[j] = -other[j]
			}
		}
	}
	return x
}

// requireSameTraining demands of a device the codec that the processor trains, of so many
// vectors for each centroid.
func requireSameTraining(t *testing.T, d *runtime.Device, seed uint64, dim, n, k int, points ...int) {
	t.Helper()
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	x := training(rand.New(rand.NewPCG(seed, 3)), n, dim)
	for _, points := range points {
		o := codec.TrainOptions{K: k, Seed: seed, MaxPointsPerCentroid: points, Backend: cpu, Threads: 1}
		want, report, err := codec.Train(ctx, x, dim, o)
		require.NoError(t, err)
		o.Backend = NewBuilder(d, cpu)
		got, again, err := codec.Train(ctx, x, dim, o)
		require.NoError(t, err)
		require.Equal(t, report, again, "seed %d", seed)
		require.Equal(t, want.Kernel(), got.Kernel(), "seed %d", seed)
	}
	require.Zero(t, d.Live().Allocations)
}

// What k-means makes of rows that stay on the device is what it makes on the processor, to
// the bit: so the codec is, and what the report says.
func TestTrainingOnDevice(t *testing.T) {
	f := runtimetest.Fake(fakeKernels())
	d := runtimetest.OpenFake(t, f)
	for seed, shape := range [][3]int{{8, 900, 70}, {3, 40, 40}, {128, 300, 5}, {200, 200, 16}, {16, 1, 1}} {
		requireSameTraining(t, d, uint64(seed), shape[0], shape[1], shape[2], 0, 4)
	}
	launched := 0
	fakes := f.Kernels
	f.Kernels = fakeKernels()
	f.Kernels["cluster_means"] = func(f *drivertest.Fake, l *driver.Launch) { launched++; fakes["cluster_means"](f, l) }
	requireSameTraining(t, d, 9, 16, 500, 20, 0, 10)
	require.Positive(t, launched, "the device adds up")

	f.Memory = 13 << 20 // half of it does not hold the rows, all of it what one thread asks for
	launched = 0
	requireSameTraining(t, d, 9, 128, 14000, 20, 1000)
	require.Zero(t, launched, "the processor adds up what has no room on the device")
}

// Whatever fails while rows are kept, nothing is left of them, and the error is told.
func TestKeptRowsFailInTurn(t *testing.T) {
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	const dim, n, k = 64, 50, 4
	x := kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 1)), n, dim)
	rows := make([]uint32, n)
	for i := range rows {
		rows[i] = uint32(i)
	}
	failInTurn(t, 15, func(d *runtime.Device) error {
		kept, err := NewBuilder(d, cpu).(kernels.RowUploader).UploadRows(ctx, x, dim, rows)
		if err != nil {
			return err
		}
		defer kept.Release()
		centroids, codes, scores := slices.Clone(x[:k*dim]), make([]uint32, n), make([]float32, n)
		if err := kept.Nearest(ctx, codes, scores, centroids, func(int) {}); err != nil {
			return err
		}
		order, starts := byCentroid(codes, k)
		return kept.UpdateCentroids(ctx, centroids, order, starts)
	})
}

func byCentroid(codes []uint32, k int) (order []uint32, starts []int) {
	starts = []int{0}
	for c := range k {
		for i, code := range codes {
			if int(code) == c {
				order = append(order, uint32(i))
			}
		}
		starts = append(starts, len(order))
	}
	return order, starts
}

// A device that is closed, a context that ends and means before a round are errors.
func TestKeptRowsErrors(t *testing.T) {
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	f := runtimetest.Fake(fakeKernels())
	d := runtimetest.OpenFake(t, f)
	const dim = 16
	x := kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 1)), 3, dim)
	kept, err := NewBuilder(d, cpu).(kernels.RowUploader).UploadRows(ctx, x, dim, []uint32{2, 0})
	require.NoError(t, err)
	codes, scores := make([]uint32, 2), make([]float32, 2)
	require.ErrorIs(t, kept.UpdateCentroids(ctx, x[:dim], []uint32{0, 1}, []int{0, 2}), kernels.ErrShape)
	require.ErrorIs(t, kept.Nearest(ctx, codes, scores, nil, func(int) {}), kernels.ErrShape)
	require.NoError(t, kept.Nearest(ctx, codes, scores, x, func(int) {}))
	require.Equal(t, []uint32{2, 0}, codes)
	require.ErrorIs(t, kept.UpdateCentroids(ctx, x[:dim], []uint32{0, 1}, []int{0, 2}), kernels.ErrShape, "other centroids")
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, kept.Nearest(canceled, codes, scores, x, func(int) {}), context.Canceled)
	require.NoError(t, kept.Nearest(ctx, codes, scores, x, func(int) {}))
	require.NoError(t, d.Close())
	require.ErrorIs(t, kept.UpdateCentroids(ctx, slices.Clone(x), []uint32{1, 0}, []int{0, 1, 1, 2}), kernels.ErrDeviceClosed)
	kept.Release()
	_, err = NewBuilder(d, cpu).(kernels.RowUploader).UploadRows(ctx, x, dim, []uint32{2, 0})
	require.ErrorIs(t, err, kernels.ErrDeviceClosed)
}
