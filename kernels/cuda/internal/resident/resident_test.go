package resident_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident/residenttest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// row is a vector that no other row has.
func row(i, dim int) (halves []byte) {
	for j := range dim {
		halves = binary.LittleEndian.AppendUint16(halves, uint16(31*i+j))
	}
	return halves
}

// Vectors keep their values while they grow, up to half of the memory that was free, and a move
// that fails leaves them as they were.
func TestVectorsGrow(t *testing.T) {
	defer resident.SetFirstBytes(1000)()
	f := runtimetest.Fake(map[string]drivertest.Kernel{"gather_rows": residenttest.Gather})
	f.Memory = 40000
	d := runtimetest.OpenFake(t, f)
	const dim, most = 5, 20000 / 10
	v, err := resident.New(t.Context(), d, dim)
	require.NoError(t, err)
	require.NoError(t, v.Read(t.Context(), nil, nil))
	for i := 0; i < most; i += 50 {
		var halves []byte
		for j := i; j < i+50; j++ {
			halves = append(halves, row(j, dim)...)
		}
		if i == 200 {
			after := runtimetest.FailAt(f, "cuMemcpyDtoDAsync")
			require.ErrorIs(t, residenttest.WriteHalves(t.Context(), d, v, i, halves), kernels.ErrDeviceMemory)
			after()
		}
		require.NoError(t, residenttest.WriteHalves(t.Context(), d, v, i, halves), "row %d", i)
	}
	require.Equal(t, 1, d.Live().Allocations)
	require.ErrorIs(t, residenttest.WriteHalves(t.Context(), d, v, most, row(1, dim)), kernels.ErrDeviceMemory)
	require.Equal(t, []int{dim, most}, []int{v.Dim(), v.Len()})
	f.Memory = 1 << 20
	for _, numbers := range [][]uint32{{most - 1, 0, 7, 7}, {}, {150, 50, 149}} {
		var want []byte
		for _, r := range numbers {
			want = append(want, row(int(r), dim)...)
		}
		got := make([]byte, 2*dim*len(numbers))
		require.NoError(t, v.Read(t.Context(), got, numbers))
		require.Equal(t, string(want), string(got))
	}
	after := runtimetest.FailAt(f, "cuMemcpyDtoHAsync")
	require.ErrorIs(t, v.Read(t.Context(), make([]byte, 2*dim), []uint32{1}), driver.ErrOutOfMemory)
	after()
	require.NoError(t, d.Call(t.Context(), func(*runtime.Runtime) error { return nil }))
	v.Release()
	require.Zero(t, d.Live().Allocations)
	require.ErrorIs(t, residenttest.WriteHalves(t.Context(), d, v, 0, row(1, dim)), kernels.ErrDeviceClosed)
}
