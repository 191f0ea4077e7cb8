package dense

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Once warm, a call with documents that are held takes a few small pieces of memory, and
// none that grows with their number.
func TestWarmCallsTakeLittleMemory(t *testing.T) {
	idle := map[string]drivertest.Kernel{}
	for name := range fakeKernels() {
		idle[name] = func(*drivertest.Fake, *driver.Launch) {}
	}
	b := New(runtimetest.OpenFake(t, runtimetest.Fake(idle))).(*backend)
	rng := maxsimtest.Rand(1)
	q, d := maxsimtest.Side{Lengths: []int{3, 40}}.Batch(rng, 8), maxsimtest.Side{Lengths: equal(4000, 2)}.Batch(rng, 8)
	h, err := b.Hold(ctx, d, maxsim.HoldOptions{})
	require.NoError(t, err)
	defer h.Close()
	c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
	c.D = h
	r := &maxsim.RankCall{Q: q, D: h, K: 10, Docs: make([]int32, 20), Scores: make([]float32, 20)}
	for name, call := range map[string]func() error{"score": func() error { return b.Score(ctx, c) }, "rank": func() error { return b.Rank(ctx, r) }} {
		require.NoError(t, call())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const runs = 10
		for range runs {
			require.NoError(t, call())
		}
		runtime.ReadMemStats(&after)
		require.Less(t, (after.TotalAlloc-before.TotalAlloc)/runs, uint64(16<<10), name)
	}
}
