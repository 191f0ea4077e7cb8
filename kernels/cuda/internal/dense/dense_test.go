package dense

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

var ctx = context.Background()

// The host's part against the oracle, with kernels in Go.
func TestSuiteWithoutADevice(t *testing.T) {
	o := maxsimtest.Options{MaxDim: 64}
	if !effort.Long() {
		o.MaxDim = 17
	}
	maxsimtest.Run(t, New(runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels()))), o)
}

// The same in pieces, of documents and of pairs, and of documents that were cut into
// segments.
func TestSuiteInPieces(t *testing.T) {
	o := maxsimtest.Options{MaxDim: 17}
	b := New(runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels()))).(*backend)
	for _, l := range []callLimits{
		{docs: 2000, projected: 3000, out: 700, part: 300, segment: 1 << 30},
		{docs: 1 << 20, projected: 1 << 20, out: 1 << 20, part: 1 << 20, segment: 4},
		{docs: 2000, projected: 2000, out: 3000, part: 1000, segment: 2},
	} {
		if !effort.Long() && l.segment != 2 {
			continue
		}
		b.limits = l
		t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) { maxsimtest.Run(t, b, o) })
	}
}

func TestName(t *testing.T) {
	require.Equal(t, "cuda:0", New(runtimetest.OpenFake(t, runtimetest.Fake(nil))).Name())
}

// Whatever fails on the way is the error, what was given out is given back, and the
// device goes on.
func TestEveryCallFailsInTurn(t *testing.T) {
	rng := maxsimtest.Rand(41)
	q := maxsimtest.Side{Lengths: []int{3, 40}, Masked: 0.2}.Batch(rng, 8)
	d := maxsimtest.Side{Type: maxsim.I8, Affine: true, Lengths: []int{5, 0, 9}}.Batch(rng, 8)
	terms := maxsim.Terms{Normalize: true, Weights: maxsimtest.Normal(rng, q.Tokens.Rows())}
	for n := 1; ; n++ {
		f := runtimetest.Fake(fakeKernels())
		dev := runtimetest.OpenFake(t, f)
		b := New(dev)
		calls, failed := 0, ""
		f.Fail = func(op string) driver.Result {
			switch op {
			case "cuMemAlloc", "cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemsetD8Async", "cuLaunchKernel", "cuModuleLoadDataEx":
				if calls++; calls == n {
					failed = op
					return driver.OutOfMemory
				}
			}
			return driver.Success
		}
		work := func() error {
			h, err := b.Prepare(ctx, d)
			if err != nil {
				return err
			}
			defer h.Close()
			c := maxsimtest.NewCall(q, d, maxsim.All(), terms)
			c.D = h
			if err := b.Score(ctx, c); err != nil {
				return err
			}
			g := &maxsim.GradCall{Q: q, D: h, Terms: terms, Argmax: c.Argmax,
				DQ: maxsimtest.NewGradient(q, maxsim.F32), DD: maxsimtest.NewGradient(d, maxsim.F32)}
			if err := b.Gradients(ctx, g); err != nil {
				return err
			}
			r := &maxsim.RankCall{Q: q, D: h, K: 2, Docs: make([]int32, 4), Scores: make([]float32, 4)}
			if err := b.(maxsim.Ranker).Rank(ctx, r); err != nil {
				return err
			}
			head := &maxsim.HeadCall{Q: q, D: d, Head: maxsim.Head{Weights: maxsim.Float32(make([]float32, 64), 8), Bias: make([]float32, 8)}, Scores: c.Scores}
			if err := maxsim.ScoreHead(ctx, b, head); err != nil {
				return err
			}
			x := &maxsim.ChamferCall{X: q, Y: d, Distances: c.Scores, NearestX: c.Argmax, NearestY: make([]int32, 6*9)}
			if err := maxsim.Chamfer(ctx, b, x); err != nil {
				return err
			}
			return maxsim.ChamferGradients(ctx, b, &maxsim.ChamferGradCall{X: q, Y: d, NearestX: x.NearestX, NearestY: x.NearestY,
				DX: maxsimtest.NewGradient(q, maxsim.F32), DY: maxsimtest.NewGradient(d, maxsim.F32)})
		}
		err := work()
		if failed == "" {
			require.NoError(t, err)
			require.Greater(t, n, 50)
			return
		}
		require.ErrorIs(t, err, driver.ErrOutOfMemory, "call %d, %s", n, failed)
		require.ErrorContains(t, err, "token vectors on cuda:0")
		f.Fail = nil
		require.NoError(t, work(), "after call %d, %s", n, failed)
	}
}

// A closed device holds nothing, and says so.
func TestClosedDevice(t *testing.T) {
	f := runtimetest.Fake(fakeKernels())
	dev, err := runtimetest.Open(f.API(), runtimetest.Modules())
	require.NoError(t, err)
	b := New(dev)
	rng := maxsimtest.Rand(42)
	q, d := maxsimtest.Side{Lengths: []int{3}}.Batch(rng, 8), maxsimtest.Side{Lengths: []int{5}}.Batch(rng, 8)
	h, err := b.Prepare(ctx, d)
	require.NoError(t, err)
	other := New(runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels())))
	c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
	c.D = h
	require.ErrorIs(t, other.Score(ctx, c), maxsim.ErrForeign, "held by another device")
	require.NoError(t, dev.Close())
	require.Error(t, b.Score(ctx, c))
	require.NoError(t, h.Close())
	runtimetest.RequireNothingOut(t, f, dev)
}

// Each query meets each of its documents in one unit, whatever the kernel.
func TestWorkIsDoneOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := func(name string, most int) *tokens {
			l, offsets := rapid.SliceOfN(rapid.IntRange(0, most), 1, 12).Draw(t, name), []int{0}
			for _, n := range l {
				offsets = append(offsets, offsets[len(offsets)-1]+n)
			}
			return newTokens(maxsim.Shape{Layout: maxsim.Layout{Offsets: offsets}})
		}
		q, d := lengths("queries", 70), lengths("documents", 300)
		k := rapid.SampledFrom([]kernel{
			{tokens: 16, groups: 8, teams: 1}, {tokens: 16, groups: 16, teams: 1}, {tokens: 32, groups: 1, teams: 1}, {tokens: 32, groups: 1, teams: 4}, {tokens: 64, groups: 1, teams: 3},
		}).Draw(t, "kernel")
		k.slots = rapid.IntRange(1, 40).Draw(t, "slots")
		nq, nd := q.shape.Len(), d.shape.Len()
		var w launchWork
		want := map[[3]int]bool{} // query, token of it, document
		meet := func(query, doc int) {
			for r := range q.rowCount(query) {
				if d.rowCount(doc) > 0 {
					want[[3]int{q.first[query] + r, 0, doc}] = true
				}
			}
		}
		docOf := func(it denseItem) int {
			for i := range nd {
				if d.rowCount(i) > 0 && uint64(d.first[i]) == it.begin {
					return i
				}
			}
			return -1
		}
		if rapid.Bool().Draw(t, "all") {
			w.pairAll(q, d, 0, nd, 0, nd, q.longestItem(), &k)
			for i := range nq * nd {
				meet(i/nd, i%nd)
			}
		} else {
			for i := range nq { // one document each
				meet(i, i%nd)
			}
			w.pairListed(q, d, nq, func(i int) (int, int) { return i, i % nd }, 0, q.longestItem(), &k)
		}
		if len(w.units)%k.teams != 0 {
			t.Fatalf("%d units for teams of %d", len(w.units), k.teams)
		}
		for i, u := range w.units {
			if u.group/uint32(k.groups) != w.units[i/k.teams*k.teams].group/uint32(k.groups) && k.teams > 1 {
				t.Fatal("teams of a block with different groups")
			}
			if u.begin < u.end && u.first != w.items[u.begin] {
				t.Fatal("not the first item")
			}
			for _, it := range w.items[u.begin:u.end] {
				for _, g := range w.groups[u.group : u.group+u.groups] {
					if g.count == 0 || int(g.count) > k.tokens || u.groups > uint32(k.groups) {
						t.Fatalf("group of %d, %d in a unit", g.count, u.groups)
					}
					for r := range g.count {
						key := [3]int{int(g.row + r), 0, docOf(it)}
						if !want[key] {
							t.Fatalf("%v is done twice, or not asked for", key)
						}
						delete(want, key)
					}
				}
			}
		}
		if len(want) > 0 {
			t.Fatalf("%d are not done", len(want))
		}
	})
}

// Few units are on as many multiprocessors as there can be, many share them.
func TestUnitsSpreadOut(t *testing.T) {
	k := kernel{tokens: 32, groups: 1, teams: 4, slots: 4 * 10}
	q := evenSpans{1, 32, 32}
	for docs, blocks := range map[int]int{1: 1, 3: 3, 10: 10, 14: 7, 25: 9, 40: 10, 400: 10} {
		var w launchWork
		w.pairAll(q, evenSpans{docs, 64, 64}, 0, docs, 0, docs, 32, &k)
		require.Len(t, w.units, 4*blocks, "%d documents", docs)
		w.pairListed(q, evenSpans{docs, 64, 64}, docs, func(i int) (int, int) { return 0, i }, 0, 32, &k)
		require.Len(t, w.units, 4*blocks, "%d documents of a query", docs)
	}
	// Queries share the device.
	var w launchWork
	w.pairListed(evenSpans{10, 32, 32}, evenSpans{400, 64, 64}, 400, func(i int) (int, int) { return i / 40, i }, 0, 32, &k)
	require.Len(t, w.units, 40)
}

// The kernels that are chosen are in the sources, with the shared memory and the ring
// that the host thinks they have.
func TestKernelsAreInTheSources(t *testing.T) {
	text, err := os.ReadFile("../../src/dense/dense.cu")
	require.NoError(t, err)
	header, err := os.ReadFile("../../src/dense/dense.cuh")
	require.NoError(t, err)
	require.Contains(t, string(header), fmt.Sprintf("constexpr int kSplit = %d;", split))
	require.Contains(t, string(header), fmt.Sprintf("constexpr int kCompressed = %d;", sourceNumber(maxsim.Compressed)))
	require.Contains(t, string(header), fmt.Sprintf("constexpr int kPullShared = %d;", gradShared))
	require.Contains(t, string(header), fmt.Sprintf("constexpr uint32_t kListDigits = %d;", listDigits))
	require.Contains(t, string(header), fmt.Sprintf("kAllPairs = %d, kOwnPairs = %d, kListedPairs = %d;", PairsAll, PairsOwn, PairsListed))

	there, batches := map[string]bool{"dense/dense_any": true}, map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^PLAID_ROWS_OF\((\w+), \w+, (\d)\)`).FindAllStringSubmatch(string(text), -1) {
		for _, columns := range []string{"32", "64"} {
			there["dense/dense_rows_"+m[1]+"_n"+columns+"_v"+m[2]] = true
		}
	}
	for _, m := range regexp.MustCompile(`PLAID_DENSE_BATCH\((\w+), \w+, (\d+), (\d), (\d)\)`).FindAllStringSubmatch(string(text), -1) {
		names := []string{m[1]}
		if m[1] == "NAME" { // within PLAID_BATCHES_OF
			names = []string{"f16", "bf16"}
		}
		for _, name := range names {
			batches[fmt.Sprintf("%s_s%s_g%s", name, m[2], m[3])], _ = strconv.Atoi(m[4])
			there[fmt.Sprintf("dense/dense_batch_%s_s%s_g%s", name, m[2], m[3])] = true
		}
	}
	n := 0
	for f, all := range batchStages {
		for k, stages := range all {
			require.Equal(t, stages, batches[fmt.Sprintf("%s_s%d_g%d", f.kernelName(), k[0], k[1])])
			n++
		}
	}
	require.Len(t, batches, n)

	const most = 227 << 10 // shared memory of sm_90
	projections, err := os.ReadFile("../../src/dense/head.cuh")
	require.NoError(t, err)
	there["dense/dense_project_any"] = true
	require.Contains(t, string(projections), fmt.Sprintf("kHeadTeams = %d, kHeadStages = %d;", headTeams, headStages))
	require.Contains(t, string(projections), fmt.Sprintf("kHeadRing = %d;", headRing))
	for _, m := range regexp.MustCompile(`(?m)^PLAID_DENSE_HEAD\((\w+), \w+, (\d+)\)`).FindAllStringSubmatch(string(projections), -1) {
		there[fmt.Sprintf("dense/dense_project_%s_n%s", m[1], m[2])] = true
	}
	for _, f := range []format{f16, bf16, i8, e4m3, split} {
		for hidden := 1; hidden <= 4096; hidden += 1 + hidden/50 {
			for _, dim := range []int{1, 64, 65, 128, 129, 1000} {
				for _, fast := range []bool{false, true} {
					k := chooseProjector("90a", most, f, fast, rowBytes(f, hidden), dim)
					if !there[k.name] || k.shared > most || k.packs && dim > k.columns {
						t.Fatalf("%s with %d bytes of shared memory, %d columns for %d dimensions", k.name, k.shared, k.columns, dim)
					}
					if bytes, ok := headShared(most, k.columns, rowBytes(f, hidden), true); k.packs && (!ok || bytes > most) {
						t.Fatalf("%d columns and %d bytes a row: %d bytes of shared memory", k.columns, rowBytes(f, hidden), bytes)
					}
				}
			}
		}
	}
	for _, f := range []format{f16, bf16, i8, e4m3, split} {
		for dim := 1; dim <= 4096; dim += 1 + dim/100 {
			s := shape{docs: packedRows{format: f, rowBytes: rowBytes(f, dim)}, fast: true}
			for _, longest := range []int{1, 32, 33, 64, 65, 300} {
				for _, all := range []bool{false, true} {
					for _, arg := range []bool{false, true} {
						s.longest, s.tokens, s.queryCount, s.all, s.argmax = longest, 3*longest, 3, all, arg
						k := kernel{name: "dense/dense_any", tokens: 32, groups: 1, teams: 1}
						s.pickHopperKernel(&k, most)
						if !there[k.name] || k.shared > most {
							t.Fatalf("%s with %d bytes of shared memory", k.name, k.shared)
						}
					}
				}
			}
			v := vectorsPerStep(f, s.docs.rowBytes)
			require.Zero(t, s.docs.rowBytes%(64*v), "dimension %d of %s", dim, f.kernelName())
			require.GreaterOrEqual(t, s.docs.rowBytes, dim*map[format]int{f16: 2, bf16: 2, i8: 1, e4m3: 1, split: 4}[f])
		}
	}
}

// Splits fill the device better than one run of all documents would, and leave a
// document to each.
func TestSplits(t *testing.T) {
	require.Equal(t, 527, len(cutAll(10000, runsThatFill(1, 10000, 528)))-1)
	require.Equal(t, 16, runsThatFill(8, 64, 132))
	require.Equal(t, 1, runsThatFill(256, 64, 132))
	require.Equal(t, 1, runsThatFill(1, 1, 528))
	rapid.Check(t, func(t *rapid.T) {
		blocks, items, slots := rapid.IntRange(1, 2000).Draw(t, "blocks"), rapid.IntRange(1, 5000).Draw(t, "items"), rapid.IntRange(1, 700).Draw(t, "slots")
		n := runsThatFill(blocks, items, slots)
		if n < 1 || n > items {
			t.Fatal(n)
		}
		for i, c := range cutAll(items, n)[1:] {
			if c <= i {
				t.Fatal("an empty run")
			}
		}
	})
}

// cutAll is where n runs of items of the same length are cut.
func cutAll(items, n int) []int {
	var w launchWork
	for range items {
		w.items = append(w.items, denseItem{len: 10})
	}
	w.cutRuns(0, items, n)
	return w.cuts
}

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
	h, err := b.Prepare(ctx, d)
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
