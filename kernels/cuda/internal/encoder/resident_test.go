package encoder

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// requireResident demands of calls at a time that they leave the halves of EncodeHalves on the
// device, each at its own place.
func requireResident(t *testing.T, m *model, r *rand.Rand, calls int) {
	t.Helper()
	dim := m.About().Dim
	v, err := m.NewVectors(t.Context())
	require.NoError(t, err)
	defer v.Release()
	require.Equal(t, dim, v.Dim())
	var want []byte
	var wait sync.WaitGroup
	rows := 0
	for i := range calls {
		b := batchOf(textOf(r, 1+r.IntN(100)), nil, textOf(r, 1), textOf(r, r.IntN(longest)))
		kept := keptOf(r, len(b.IDs), []float64{.8, 1, 0, .1}[i%4])
		halves := make([]byte, 2*dim*len(kept))
		require.NoError(t, m.EncodeHalves(t.Context(), halves, b, kept))
		want = append(want, halves...)
		first := rows
		rows += len(kept)
		wait.Go(func() {
			if err := m.EncodeResident(t.Context(), v, first, b, kept); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	require.Equal(t, rows, v.Len())
	numbers := make([]uint32, rows)
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	got := make([]byte, len(want))
	require.NoError(t, v.Read(t.Context(), got, numbers))
	require.Equal(t, want, got)
	require.ErrorIs(t, v.Read(t.Context(), got[:2*dim], []uint32{uint32(rows)}), kernels.ErrShape)
}

// TestResident: what stays on the device is what would have come from it, in passes of few tokens
// and of many, and in the company of other calls.
func TestResident(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	k := kinds()[0]
	w := k.weights(41)
	w.Layers = w.Layers[:1]
	for _, o := range []transformer.Options{{}, {Tokens: 200}} {
		m := openModel(t, k.config, w, o, false)
		m.fake.Memory = 80 << 20
		requireResident(t, m.model, r, 9)
	}
}

// TestResidentThatCannotBe: no room, vectors that were released, and those of another device or
// dimension.
func TestResidentThatCannotBe(t *testing.T) {
	k := kinds()[0]
	w := k.weights(43)
	w.Layers = w.Layers[:1]
	o := transformer.Options{Tokens: 200}
	m, other := openModel(t, k.config, w, o, false), openModel(t, k.config, w, o, false)
	b, kept := batchOf([]int32{1, 2, 3}), []int32{0, 2}
	m.fake.Memory = 40 << 20
	v, err := m.NewVectors(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, other.EncodeResident(t.Context(), v, 0, b, kept), transformer.ErrBatch)
	require.ErrorIs(t, m.EncodeResident(t.Context(), v, -1, b, kept), transformer.ErrBatch)
	require.ErrorIs(t, m.EncodeResident(t.Context(), v, 0, b, []int32{3}), transformer.ErrBatch)
	require.ErrorIs(t, m.EncodeResident(t.Context(), v, 1<<20, b, kept), kernels.ErrDeviceMemory)
	require.NoError(t, m.EncodeResident(t.Context(), v, 5, b, kept))
	require.Equal(t, 7, v.Len())
	v.Release()
	require.ErrorIs(t, m.EncodeResident(t.Context(), v, 0, b, kept), kernels.ErrDeviceClosed)
	require.ErrorIs(t, v.Read(t.Context(), make([]byte, 2*v.Dim()), []uint32{0}), kernels.ErrDeviceClosed)
	v.Release()
}
