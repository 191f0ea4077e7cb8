package nearest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident/residenttest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// put leaves vectors on a device, and returns them rounded to halves.
func put(t testing.TB, d *runtime.Device, x []float32, dim int) (*resident.Vectors, []float32) {
	t.Helper()
	halves := make([]byte, 2*len(x))
	require.True(t, floats.EncodeFloat16(halves, x))
	v, err := resident.New(ctx, d, dim)
	require.NoError(t, err)
	require.NoError(t, residenttest.WriteHalves(ctx, d, v, 0, halves))
	rounded := make([]float32, len(x))
	floats.DecodeFloat16(rounded, halves)
	return v, rounded
}

// some draws ascending numbers below n, not all of them, but one at least.
func some(rng *rand.Rand, n int) []uint32 {
	numbers := []uint32{uint32(rng.IntN(n))}
	for i := int(numbers[0]) + 1; i < n; i++ {
		if rng.IntN(4) > 0 {
			numbers = append(numbers, uint32(i))
		}
	}
	return numbers
}

func rowsOf(x []float32, dim int, numbers []uint32) []float32 {
	var rows []float32
	for _, r := range numbers {
		rows = append(rows, x[int(r)*dim:(int(r)+1)*dim]...)
	}
	return rows
}

// requireSameResidentTraining demands of vectors that lie on a device the codec that the processor
// trains of them.
func requireSameResidentTraining(t *testing.T, d *runtime.Device, seed uint64, dim, n, k int) {
	t.Helper()
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(seed, 31))
	v, x := put(t, d, training(rng, n, dim), dim)
	for _, unit := range []bool{true, false} {
		for _, whole := range []bool{false, true} {
			s := &codec.ResidentSample{Vectors: v, Numbers: some(rng, n), Unit: unit}
			rows := rowsOf(x, dim, s.Numbers)
			if unit {
				codec.Normalize(rows, dim)
			}
			points := rng.IntN(2) * (1 + rng.IntN(9))
			o := codec.TrainOptions{K: k, Seed: seed, MaxPointsPerCentroid: points, Backend: cpu, Threads: 1}
			own := o
			own.Backend, own.Threads = NewBuilder(d, cpu), 3
			if whole {
				s.All = some(rng, n)
				all := rowsOf(x, dim, s.All)
				if unit {
					codec.Normalize(all, dim)
				}
				o.AllVectors = int64(len(s.All))
				o.All = func(yield func([]float32, error) bool) { yield(all, nil) }
			}
			want, report, err := codec.Train(ctx, rows, dim, o)
			require.NoError(t, err)
			var last int64
			own.Progress = func(done, total int64) {
				require.LessOrEqual(t, last, done)
				if last = done; done == total {
					last = 0
				}
			}
			got, again, err := codec.TrainResident(ctx, s, own)
			require.NoError(t, err)
			require.Zero(t, last, "all is told")
			require.Equal(t, report, again, "seed %d, unit %v, all %v", seed, unit, whole)
			require.Equal(t, want.Kernel(), got.Kernel(), "seed %d, unit %v, all %v", seed, unit, whole)
		}
	}
	v.Release()
	require.Zero(t, d.Live().Allocations)
}

// openSmall opens a device with so little memory that vectors take half of it.
func openSmall(t *testing.T) *runtime.Device {
	f := runtimetest.Fake(fakeKernels())
	f.Memory = 240 << 20
	return runtimetest.OpenFake(t, f)
}

func TestResidentTraining(t *testing.T) {
	d := openSmall(t)
	for seed, shape := range [][3]int{{8, 900, 70}, {3, 40, 40}, {128, 300, 5}, {200, 200, 16}, {16, 2, 1}} {
		requireSameResidentTraining(t, d, uint64(seed), shape[0], shape[1], shape[2])
	}
}

// requireSameResidentTokens demands that vectors that lie on a device are encoded as those that
// come from the host.
func requireSameResidentTokens(t *testing.T, d *runtime.Device, rng *rand.Rand, dim, nbits, k, n int) {
	t.Helper()
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	q, x := sample(rng, dim, nbits, k, n)
	v, x := put(t, d, x, dim)
	defer v.Release()
	for _, unit := range []bool{false, true} {
		on, err := q.NewEncoder(ctx, 3, NewBuilder(d, cpu), unit)
		require.NoError(t, err)
		require.True(t, on.CanEncodeResident(v))
		e, err := q.NewEncoder(ctx, 1, cpu, unit)
		require.NoError(t, err)
		require.False(t, e.CanEncodeResident(v))
		for _, cut := range [][2]int{{0, n}, {n / 3, n/3 + 1}, {n / 2, n - n/2}} {
			var want, got codec.Block
			require.NoError(t, on.EncodeResident(ctx, &got, v, cut[0], cut[1]))
			require.NoError(t, e.Encode(ctx, &want, append([]float32{}, x[cut[0]*dim:(cut[0]+cut[1])*dim]...)))
			require.Equal(t, want.Codes, got.Codes)
			require.Equal(t, want.Residuals, got.Residuals)
			require.Equal(t, want.Factors, got.Factors)
			require.Equal(t, want.SumSq, got.SumSq)
			require.Equal(t, [3]int{want.Tokens, want.Clamped, want.Zero}, [3]int{got.Tokens, got.Clamped, got.Zero})
		}
		var b codec.Block
		require.ErrorIs(t, on.EncodeResident(ctx, &b, v, 1, n), kernels.ErrShape)
		require.Zero(t, b.Tokens)
		e.Close()
		on.Close()
	}
}

func TestResidentTokens(t *testing.T) {
	d := openSmall(t)
	rng := rand.New(rand.NewPCG(2, 8))
	for _, dim := range []int{1, 16, 100, 200} {
		requireSameResidentTokens(t, d, rng, dim, []int{1, 2, 4, 8}[rng.IntN(4)], 40, 150)
	}
	requireSameResidentTokens(t, d, rng, 2, 2, 3, 2*maxRows+5)
}

// Whatever fails, nothing is left but the vectors, and the error is told.
func TestResidentFailsInTurn(t *testing.T) {
	cpu, err := kernels.Select("")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 41))
	const dim, n, k = 16, 60, 4
	q, x := sample(rng, dim, 2, k, n)
	halves := make([]byte, 2*len(x))
	require.True(t, floats.EncodeFloat16(halves, x))
	failInTurn(t, 40, func(d *runtime.Device) error {
		v, err := resident.New(ctx, d, dim)
		if err != nil {
			return err
		}
		defer v.Release()
		if err := residenttest.WriteHalves(ctx, d, v, 0, halves); err != nil {
			return fmt.Errorf("cuda:0: %w", err)
		}
		b := NewBuilder(d, cpu)
		kept, err := b.(kernels.ResidentBuilder).SelectRows(ctx, v, []uint32{0, 5, 9}, true)
		if err != nil {
			return err
		}
		defer kept.Release()
		codes, scores := make([]uint32, 3), make([]float32, 3)
		if err := kept.Nearest(ctx, codes, scores, append([]float32{}, x[:k*dim]...), func(int) {}); err != nil {
			return err
		}
		if err := kept.SquaredLengths(ctx, make([]float64, 3)); err != nil {
			return err
		}
		order, starts := byCentroid(codes, k)
		if err := kept.SumRows(ctx, make([]float32, k*dim), order, starts); err != nil {
			return err
		}
		if err := v.Read(ctx, make([]byte, 4*dim), []uint32{2, 1}); err != nil {
			return err
		}
		e, err := q.NewEncoder(ctx, 1, b, true)
		if err != nil {
			return err
		}
		defer e.Close()
		return e.EncodeResident(ctx, new(codec.Block), v, 0, n)
	})
}
