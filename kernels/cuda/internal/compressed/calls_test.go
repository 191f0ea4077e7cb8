package compressed

import (
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// Calls of the driver cost microseconds each, and a search has few of them: once
// the workspace is large enough, it makes no others than these.
func TestSearchesMakeFewCalls(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, K: 200, Lengths: lengths(rng, 60, 30), CentroidScale: true})
	c := newCorpus(cs.Codec, split(cs, rng, 3)...)
	type counts struct{ graphs, launches, sets, up, down, syncs int }
	for name, want := range map[string]struct {
		qs []kernels.DeviceQuery
		counts
	}{
		"one": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3}}, counts{1, 0, 0, 0, 0, 0}},
		"three": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3}, {Vectors: cs.Query(40), K: 3}, {Vectors: cs.Query(4), K: 3}},
			counts{0, 5, 0, 1, 1, 1}},
		"probed":     {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3, Probes: 3}}, counts{1, 0, 0, 0, 0, 0}},
		"two probed": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3, Probes: 3}, {Vectors: cs.Query(4), K: 3, Probes: 3}}, counts{0, 15, 1, 1, 1, 1}},
		"two cut": {[]kernels.DeviceQuery{{Vectors: cs.Query(32), K: 3, Probes: 3, MaxCandidates: 20}, {Vectors: cs.Query(32), K: 3, Probes: 3, MaxCandidates: 20}},
			counts{0, 17, 1, 1, 1, 1}},
		"listed": {[]kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3, Docs: []uint32{1, 5, 7}}}, counts{0, 6, 0, 1, 1, 1}},
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

// Where code can wait for the kernel in front of it, those of a search follow one
// another; the first, and searches with other work in between, wait for all of it.
func TestKernelsFollowOneAnother(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	cs := kerneltest.New(kerneltest.Config{CodeBytes: 2, Lengths: lengths(rng, 60, 30)})
	c := newCorpus(cs.Codec, cs.Chunk)
	one := kernels.DeviceQuery{Vectors: cs.Query(4), K: 3}
	probed, listed := one, one
	probed.Probes, listed.Docs = 3, []uint32{1, 5, 7}
	for _, hopper := range []bool{false, true} {
		for name, qs := range map[string][]kernels.DeviceQuery{
			"one": {one}, "two": {one, one}, "large": {{Vectors: cs.Query(40), K: 3}}, "probed": {probed}, "listed": {listed},
		} {
			f, _ := newFake()
			var launched []string
			early := 0
			for kernel, run := range f.Kernels {
				f.Kernels[kernel] = func(f *drivertest.Fake, l *driver.Launch) {
					if launched = append(launched, kernel); l.Early {
						early++
						require.NotContains(t, []string{"prep_query", "pack"}, kernel)
					}
					run(f, l)
				}
			}
			open := runtimetest.OpenFake
			if hopper {
				open = runtimetest.OpenFakeHopper
			}
			a, err := Attach(ctx, open(t, f), c, kernels.AttachOptions{Bound: kernels.Worst}) // the fake has no FP8
			require.NoError(t, err)
			for range 3 { // as a graph in the end, where there is one
				launched, early = nil, 0
				_, err = a.Search(ctx, c, qs)
				require.NoError(t, err)
				if !hopper || name == "probed" || name == "listed" {
					require.Zero(t, early, name)
					continue
				}
				require.Len(t, launched, 5, name)
				require.Equal(t, "prep_query", launched[0])
				require.Equal(t, 4, early, name)
			}
		}
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

func TestMain(m *testing.M) {
	effort.Rapid(30, 100)
	os.Exit(m.Run())
}
