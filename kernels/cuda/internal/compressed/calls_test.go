package compressed

import (
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/kerneltest"
)

// Calls of the driver cost microseconds each, and a search has few of them: once
// the workspace is large enough, it makes no others than these.
func TestSearchesMakeFewCalls(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 60, 30), CentroidScale: true})
	c := newCorpus(cs.Codec, split(cs, rng, 3)...)
	type counts struct{ graphs, launches, sets, up, down, syncs int }
	for name, want := range map[string]struct {
		qs []kernels.DeviceQuery
		counts
	}{
		"one": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3}}, counts{1, 0, 0, 0, 0, 0}},
		"three": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3}, {Vectors: cs.Query(40), K: 3}, {Vectors: cs.Query(4), K: 3}},
			counts{0, 5, 0, 1, 1, 1}},
		"probed": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3, Probes: 3}}, counts{0, 11, 3, 1, 1, 1}},
		"listed": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3, Docs: []uint32{1, 5, 7}}}, counts{0, 6, 1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFake()
			a, err := Attach(ctx, runtimetest.OpenFake(t, f), c, kernels.AttachOptions{})
			require.NoError(t, err)
			for range 2 { // the second makes a graph, where it can
				_, err = a.Search(ctx, c, want.qs)
				require.NoError(t, err)
			}
			var mu sync.Mutex
			calls := map[string]int{}
			f.Fail = func(op string) driver.Result {
				mu.Lock()
				defer mu.Unlock()
				calls[op]++
				return driver.Success
			}
			_, err = a.Search(ctx, c, want.qs)
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			expected := map[string]int{
				"cuGraphLaunch": want.graphs, "cuLaunchKernel": want.launches, "cuMemsetD8Async": want.sets, "cuMemcpyHtoDAsync": want.up,
				"cuMemcpyDtoHAsync": want.down, "cuStreamSynchronize": want.syncs,
			}
			maps.DeleteFunc(expected, func(_ string, n int) bool { return n == 0 })
			require.Equal(t, expected, calls)
		})
	}
}

// After an error nothing of the batch is left to be done: the device is waited for.
func TestErrorsWaitForTheDevice(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		f, _ := newFake()
		rng := rand.New(rand.NewPCG(4, 4))
		cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 60, 30)})
		c := newCorpus(cs.Codec, cs.Chunk)
		a, err := attach(ctx, runtimetest.OpenFake(t, f), c, kernels.AttachOptions{}, 1<<12, streamed)
		require.NoError(t, err)
		after := runtimetest.FailAt(f, "cuMemcpyDtoHAsync")
		_, err = a.Search(ctx, c, []kernels.DeviceQuery{{Vectors: cs.Query(40), K: 3}}) // of two groups: its answer is fetched
		require.ErrorIs(t, err, driver.ErrOutOfMemory)
		require.Equal(t, []string{"cuStreamSynchronize", "cuStreamSynchronize"}, after(), "both streams")
	}
}
