package compressed

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

var ctx = context.Background()

func drawCase(t *rapid.T) (*kerneltest.Case, *rand.Rand) {
	cfg := kerneltest.Config{
		Dim:           rapid.SampledFrom([]int{32, 33, 64, 96, 128, 200}).Draw(t, "dim"),
		Nbits:         rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits"),
		K:             rapid.IntRange(1, 40).Draw(t, "k"),
		CodeBytes:     2,
		Table:         rapid.Bool().Draw(t, "table"),
		DimScale:      rapid.Bool().Draw(t, "dimScale"),
		CentroidScale: rapid.Bool().Draw(t, "centroidScale"),
		ZeroFactors:   rapid.Bool().Draw(t, "zeroFactors"),
		Seed:          rapid.Uint64().Draw(t, "seed"),
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 7))
	cfg.Lengths = lengths(rng, rapid.IntRange(1, 60).Draw(t, "docs"), rapid.SampledFrom([]int{1, 20, 50}).Draw(t, "longest"))
	return kerneltest.New(cfg), rng
}

// Searches are held against the oracle over random shapes: resident
// and streamed, all documents, filters, lists and probes, one and several
// queries at once, and as many results as there are documents.
func TestSearchAgainstOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f, _ := newFake()
		cs, rng := drawCase(rt)
		c := newCorpus(cs.Codec, split(cs, rng, rapid.IntRange(1, 5).Draw(rt, "chunks"))...)
		modules := runtimetest.Modules()
		if rapid.Bool().Draw(rt, "hopper") { // which has scans of several groups side by side
			modules = runtimetest.Hopper(f)
		}
		d, err := runtimetest.Open(f.API(), modules)
		require.NoError(rt, err)
		defer func() {
			require.NoError(rt, d.Close())
			runtimetest.RequireNothingOut(t, f, d)
		}()
		streamed := rapid.Bool().Draw(rt, "streamed")
		a, err := attach(ctx, d, c, kernels.AttachOptions{}, rapid.SampledFrom([]int64{1, 1 << 10, 1 << 20}).Draw(rt, "piece"), streamed)
		require.NoError(rt, err)
		for i := range c.docs() / 4 {
			c.drop(uint32(i * 3))
		}
		var qs []kernels.DeviceQuery
		var lists [][]uint32
		for range rapid.IntRange(1, 4).Draw(rt, "queries") {
			lq := rapid.SampledFrom([]int{1, 5, 32, 33, 70}).Draw(rt, "lq")
			q := kernels.DeviceQuery{Vectors: cs.Query(lq), K: rapid.SampledFrom([]int{1, 3, 10, 100}).Draw(rt, "K")}
			if rapid.Bool().Draw(rt, "weights") {
				q.Weights = cs.Weights(lq, -0.5, 1)
			}
			var from []uint32
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 1:
				q.Allowed = make([]uint64, len(c.live))
				for i := range q.Allowed {
					q.Allowed[i] = c.live[i] & rng.Uint64()
				}
			case 2:
				q.Docs, from = []uint32{}, []uint32{}
				for i := range c.docs() {
					if rng.IntN(3) == 0 {
						if q.Docs = append(q.Docs, uint32(i)); c.isLive(uint32(i)) {
							from = append(from, uint32(i))
						}
					}
				}
			case 3:
				q.Probes = c.codec.Centroids.K // all of them
			}
			qs, lists = append(qs, q), append(lists, from)
		}
		answers, err := a.Search(ctx, c, qs)
		require.NoError(rt, err)
		for i := range qs {
			if lists[i] == nil && qs[i].Docs != nil {
				lists[i] = []uint32{}
			}
			requireBest(rt, c, &qs[i], answers[i], lists[i], 2e-4)
			require.Equal(rt, "cuda:0", answers[i].Stats.Device)
			require.Equal(rt, streamed && answers[i].Stats.ScanTokens > 0, answers[i].Stats.Streamed > 0)
			one, err := a.Search(ctx, c, qs[i:i+1])
			require.NoError(rt, err)
			require.Equal(rt, answers[i].Docs, one[0].Docs, "alone and in a batch")
			require.Equal(rt, answers[i].Scores, one[0].Scores)
		}
	})
}

// A search that asks for more than the device can rank is ranked on the host.
func TestMoreThanTheDeviceRanks(t *testing.T) {
	for i, piece := range []int64{1 << 17, 1 << 17, 1 << 14} { // more documents than a block takes, and fewer
		streamed := i > 0
		f, _ := newFake()
		rng := rand.New(rand.NewPCG(1, 1))
		cs := kerneltest.New(kerneltest.Config{Dim: 8, CodeBytes: 2, K: 16, Lengths: lengths(rng, topkBlock+200, 3)})
		c := newCorpus(cs.Codec, split(cs, rng, 3)...)
		d := runtimetest.OpenFake(t, f)
		a, err := attach(ctx, d, c, kernels.AttachOptions{}, piece, streamed)
		require.NoError(t, err)
		require.Equal(t, !streamed, a.Plan().Resident)
		for _, probes := range []int{0, 16} {
			q := kernels.DeviceQuery{Vectors: cs.Query(3), K: maxTopK + 1, Probes: probes}
			got, err := a.Search(ctx, c, []kernels.DeviceQuery{q})
			require.NoError(t, err)
			requireBest(t, c, &q, got[0], nil, 2e-4)
		}
	}
}

// Documents that were added reach the device without those that are there
// being sent again; a search on the older snapshot still sees the older one.
func TestAddedDocumentsAreAppended(t *testing.T) {
	f, _ := newFake()
	rng := rand.New(rand.NewPCG(2, 2))
	cs := kerneltest.New(kerneltest.Config{Dim: 64, CodeBytes: 2, Lengths: lengths(rng, 90, 40)})
	parts := split(cs, rng, 6)
	d := runtimetest.OpenFake(t, f)
	var a kernels.Attachment
	var before *corpus
	for n := 1; n <= len(parts); n++ {
		c := newCorpus(cs.Codec, parts[:n]...)
		if c.docs() == 0 {
			continue
		}
		if a == nil {
			var err error
			a, err = Attach(ctx, d, c, kernels.AttachOptions{})
			require.NoError(t, err)
			before = c
			continue
		}
		for _, see := range []*corpus{c, before, c} {
			q := kernels.DeviceQuery{Vectors: cs.Query(8), K: 12}
			got, err := a.Search(ctx, see, []kernels.DeviceQuery{q})
			require.NoError(t, err)
			requireBest(t, see, &q, got[0], nil, 2e-4)
		}
		require.LessOrEqual(t, c.loads, 2, "only what is new is read")
		before = c
	}
	other := newCorpus(cs.Codec, parts[3], parts[1])
	other.lineage = 9
	if other.docs() > 0 {
		q := kernels.DeviceQuery{Vectors: cs.Query(8), K: 12}
		got, err := a.Search(ctx, other, []kernels.DeviceQuery{q})
		require.NoError(t, err)
		requireBest(t, other, &q, got[0], nil, 2e-4)
	}
}

// Searches that wait together share a scan, and nobody waits for company.
func TestWaitingSearchesShareLaunches(t *testing.T) {
	f, k := newFake()
	rng := rand.New(rand.NewPCG(3, 3))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 40, 30)})
	c := newCorpus(cs.Codec, cs.Chunk)
	d := runtimetest.OpenFake(t, f)
	a, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.NoError(t, err)
	qs := make([]kernels.DeviceQuery, 20)
	for i := range qs {
		qs[i] = kernels.DeviceQuery{Vectors: cs.Query(1 + i%40), K: 5}
	}
	k.sides = nil
	got, err := a.Search(ctx, c, qs)
	require.NoError(t, err)
	require.Len(t, k.sides, 1)
	for i := range qs {
		require.EqualValues(t, 1, got[i].Stats.Batched)
		requireBest(t, c, &qs[i], got[i], nil, 2e-4)
	}
	other := make([]uint64, len(c.live))
	copy(other, c.live)
	qs[3].Allowed, qs[7].Allowed, qs[9].Probes = other, other, 2
	k.sides = nil
	_, err = a.Search(ctx, c, qs)
	require.NoError(t, err)
	require.Len(t, k.sides, 3, "17 alike, 2 with a filter, 1 that probes")
	for i := range qs {
		qs[i] = kernels.DeviceQuery{Vectors: cs.Query(1 + i%40), K: 5, Probes: 3}
	}
	launches := 0
	f.Fail = func(op string) driver.Result {
		if op == "cuLaunchKernel" {
			launches++
		}
		return driver.Success
	}
	got, err = a.Search(ctx, c, qs)
	require.NoError(t, err)
	f.Fail = nil
	require.Equal(t, 5+5*len(qs), launches, "one look at the documents for all")
	for i := range qs {
		one, err := a.Search(ctx, c, qs[i:i+1])
		require.NoError(t, err)
		require.Equal(t, one[0].Docs, got[i].Docs)
		require.Equal(t, one[0].Scores, got[i].Scores)
	}
}

// Whatever fails on the way, what was given out is given back.
func TestEveryAllocationFailsInTurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 60, 30), CentroidScale: true})
	c := newCorpus(cs.Codec, split(cs, rng, 3)...)
	queries := []kernels.DeviceQuery{
		{Vectors: cs.Query(4), K: 3}, {Vectors: cs.Query(40), K: 3}, {Vectors: cs.Query(4), K: 3, Probes: 3},
		{Vectors: cs.Query(4), K: 3, Docs: []uint32{1, 5, 7}},
	}
	for _, streamed := range []bool{false, true} {
		for _, op := range []string{"cuMemAlloc", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate", "cuMemcpyHtoDAsync", "cuLaunchKernel", "cuModuleGetFunction"} {
			for n := 1; ; n++ {
				f, _ := newFake()
				calls := 0
				f.Fail = func(call string) driver.Result {
					if call == op {
						if calls++; calls == n {
							return driver.OutOfMemory
						}
					}
					return driver.Success
				}
				d, err := runtimetest.Open(f.API(), runtimetest.Modules())
				if err == nil {
					var a *attachment
					if a, err = attach(ctx, d, c, kernels.AttachOptions{}, 1<<12, streamed); err == nil {
						_, err = a.Search(ctx, c, queries)
						if err != nil { // the device goes on
							_, again := a.Search(ctx, c, queries)
							require.NoError(t, again, "%s %d", op, n)
						}
						require.NoError(t, a.Close())
						_, err2 := a.Search(ctx, c, queries)
						require.ErrorIs(t, err2, kernels.ErrDeviceClosed)
					}
					live := d.Live()
					require.Zero(t, live.Allocations, "%s %d", op, n)
					require.Zero(t, live.HostAllocations, "%s %d", op, n)
					require.NoError(t, d.Close())
				}
				runtimetest.RequireNothingOut(t, f, nil)
				if err != nil {
					require.ErrorIs(t, err, driver.ErrOutOfMemory, "%s %d", op, n)
				}
				if calls < n {
					break
				}
			}
		}
	}
}

// A lost device answers every later request with an error that says so.
func TestLostDevice(t *testing.T) {
	f, k := newFake()
	rng := rand.New(rand.NewPCG(5, 5))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 20, 30)})
	c := newCorpus(cs.Codec, cs.Chunk)
	d := runtimetest.OpenFake(t, f)
	a, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.NoError(t, err)
	var lost atomic.Bool
	f.Fail = func(op string) driver.Result {
		if op == "cuStreamSynchronize" && lost.Load() {
			return driver.LaunchFailed
		}
		return driver.Success
	}
	lost.Store(true)
	k.silent.Store(true)
	qs := []kernels.DeviceQuery{{Vectors: cs.Query(4), K: 3}}
	for range 2 {
		_, err = a.Search(ctx, c, qs)
		require.ErrorIs(t, err, driver.ErrDeviceLost)
		var call *driver.Error
		require.True(t, errors.As(err, &call))
		require.Equal(t, driver.LaunchFailed, call.Code)
	}
	require.NoError(t, a.Close())
}

func TestManyGoroutinesAndCancelling(t *testing.T) {
	f, _ := newFake()
	rng := rand.New(rand.NewPCG(6, 6))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 30, 20)})
	c := newCorpus(cs.Codec, cs.Chunk)
	d := runtimetest.OpenFake(t, f)
	a, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.NoError(t, err)
	queries := make([]kernels.DeviceQuery, 16)
	want := make([]kernels.DeviceAnswer, len(queries))
	for i := range queries {
		queries[i] = kernels.DeviceQuery{Vectors: cs.Query(1 + 5*i), K: 4}
		got, err := a.Search(ctx, c, queries[i:i+1])
		require.NoError(t, err)
		want[i] = got[0]
	}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for r := range 12 {
				i := (g + r) % len(queries)
				run, cancel := context.WithCancel(ctx)
				if r%4 == 3 {
					go cancel()
				}
				got, err := a.Search(run, c, queries[i:i+1])
				if err == nil {
					if got[0].Docs[0] != want[i].Docs[0] || got[0].Scores[0] != want[i].Scores[0] {
						t.Errorf("query %d: %v, want %v", i, got[0].Docs, want[i].Docs)
					}
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = a.Search(canceled, c, queries[:1])
	require.ErrorIs(t, err, context.Canceled)
	_, err = Attach(canceled, d, c, kernels.AttachOptions{})
	require.ErrorIs(t, err, context.Canceled)
}
