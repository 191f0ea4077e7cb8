package dense

import (
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Documents of any size are ranked with the same memory of the device: PLAID_LARGE is
// how many GiB they have, more than the device's memory say. They are mapped memory that
// is zero but for a few documents, which have to be found.
func TestGPULargerThanMemory(t *testing.T) {
	gib := runtimetest.Env("PLAID_LARGE", 1)
	const dim, tokens = 128, 256
	dev := runtimetest.OpenGPU(t)
	b := New(dev).(*backend)
	nd := gib << 30 / (2 * dim * tokens)
	mapped, err := syscall.Mmap(-1, 0, nd*tokens*dim*2, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	defer syscall.Munmap(mapped)
	values := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(mapped))), len(mapped)/2)
	q := maxsimtest.Side{Type: maxsim.F16, Lengths: []int{32}, Unit: true}.Batch(maxsimtest.Rand(71), dim)
	// Document i of these is the query times 1/(i+1).
	places := []int{nd - 1, 0, nd / 2, nd / 3, 5}
	var want []float32
	for i, doc := range places {
		var score float32
		for j, v := range q.Tokens.U16 {
			x := kernels.F16FromF32(kernels.F16ToF32(v) / float32(i+1))
			values[doc*tokens*dim+j] = x
			score += kernels.F16ToF32(v) * kernels.F16ToF32(x)
		}
		want = append(want, score)
	}
	d := maxsim.Padded(maxsim.Float16(values, dim), tokens)
	for range 2 {
		begin := time.Now()
		r := &maxsim.RankCall{Q: q, D: d, K: 5, Docs: make([]int32, 5), Scores: make([]float32, 5)}
		require.NoError(t, b.Rank(ctx, r))
		took := time.Since(begin).Seconds()
		t.Logf("%d GiB in %.3f s, %.1f GB/s, with %.0f MiB of the device's memory", gib, took, float64(len(mapped))/took/1e9, float64(dev.Live().Bytes)/(1<<20))
		for i, doc := range places {
			require.EqualValues(t, doc, r.Docs[i])
			require.InDelta(t, want[i], r.Scores[i], 1e-2)
		}
		require.Less(t, dev.Live().Bytes, int64(400<<20))
	}
}
