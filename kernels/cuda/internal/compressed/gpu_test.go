package compressed

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// What scans of the GPU are too low by is within the bound that it states, and fine scores
// are within half of theirs of the float64 oracle, over PLAID_GPU_SHAPES random shapes.
func TestGPUAgainstOracle(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	rng := rand.New(rand.NewPCG(uint64(runtimetest.Env("PLAID_GPU_SEED", 1)), 1))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	ratio := map[int]float64{} // by Lq: largest share of the bound
	for i := range runtimetest.Env("PLAID_GPU_SHAPES", 100) {
		cfg := kerneltest.Config{
			Dim: pick(32, 48, 64, 96, 128, 128, 128, 200, 256, 384, 1024), Nbits: pick(1, 2, 2, 4, 8), K: pick(1, 7, 64, 300, 1000),
			CodeBytes: 2, Table: rng.IntN(3) == 0, DimScale: rng.IntN(2) == 0, CentroidScale: rng.IntN(2) == 0,
			ZeroFactors: rng.IntN(4) == 0, Seed: rng.Uint64(),
		}
		cfg.Lengths = lengths(rng, 1+rng.IntN(30), pick(1, 16, 40, 200))
		if rng.IntN(40) == 0 {
			cfg.Lengths = append(cfg.Lengths, 5000)
		}
		cs := kerneltest.New(cfg)
		c := newCorpus(cs.Codec, split(cs, rng, 1+rng.IntN(3))...)
		a, err := attach(ctx, d, c, kernels.AttachOptions{}, int64(pick(1<<10, 1<<25)), rng.IntN(4) == 0)
		require.NoError(t, err)
		lq := pick(1, 8, 32, 32, 33, 64, 100, 128)
		q := kernels.DeviceQuery{Vectors: cs.Query(lq), K: pick(1, 10, 100)}
		switch rng.IntN(6) {
		case 0:
			q.Weights = cs.Weights(lq, -0.5, 1)
		case 2: // tokens that are nearly one and the same, which are rounded nearly alike
			off := float32(math.Exp(-6 * rng.Float64()))
			for j := cfg.Dim; j < len(q.Vectors); j++ {
				q.Vectors[j] = q.Vectors[j%cfg.Dim] + off*q.Vectors[j]
			}
		case 3: // tokens that are one in a part of their components, which are rounded alike
			part := rng.Float64()
			for j := cfg.Dim; j < len(q.Vectors); j++ {
				if rng.Float64() < part {
					q.Vectors[j] = q.Vectors[j%cfg.Dim]
				}
			}
		case 1:
			q.Vectors = cs.Vectors(lq)
			for j := range q.Vectors { // products are negative with everything
				q.Vectors[j] = -q.Vectors[j]
			}
		}
		all := q
		all.K = c.docs() // so that every document gets a fine score, beside that of the scan
		every, err := a.Search(ctx, c, []kernels.DeviceQuery{all})
		require.NoError(t, err, "%+v", cfg)
		requireBest(t, c, &all, every[0], nil, fineError/2*float64(lq))
		share := every[0].Stats.BoundShare
		require.LessOrEqual(t, share, 1.0, "shape %d: Lq %d, streamed %v: %+v", i, lq, a.resident == nil, cfg)
		ratio[lq] = max(ratio[lq], share)
		answers, err := a.Search(ctx, c, []kernels.DeviceQuery{q, q})
		require.NoError(t, err)
		requireBest(t, c, &q, answers[0], nil, fineError/2*float64(lq))
		require.Equal(t, answers[0].Docs, answers[1].Docs)
		one, err := a.Search(ctx, c, []kernels.DeviceQuery{q})
		require.NoError(t, err)
		require.Equal(t, answers[0].Docs, one[0].Docs)
		require.Equal(t, answers[0].Scores, one[0].Scores)
		if probed := q; rng.IntN(3) == 0 {
			probed.Probes = cfg.K
			got, err := a.Search(ctx, c, []kernels.DeviceQuery{probed})
			require.NoError(t, err)
			live := 0
			for doc := range c.docs() {
				if c.isLive(uint32(doc)) {
					live++
				}
			}
			require.Len(t, got[0].Docs, min(q.K, live))
		}
		require.NoError(t, a.Close())
	}
	t.Logf("largest shares of the bound by Lq: %.2v", ratio)
	require.Positive(t, slices.Max(slices.Collect(maps.Values(ratio))), "no share was measured")
}

// Many goroutines for PLAID_GPU_STRESS seconds: no answer is mixed up.
func TestGPUStress(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	rng := rand.New(rand.NewPCG(9, 9))
	cs := kerneltest.New(kerneltest.Config{CodeBytes: 2, K: 500, Lengths: lengths(rng, 600, 60)})
	c := newCorpus(cs.Codec, cs.Chunk)
	a, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.NoError(t, err)
	queries := make([]kernels.DeviceQuery, 64)
	want := make([]kernels.DeviceAnswer, len(queries))
	for i := range queries {
		queries[i] = kernels.DeviceQuery{Vectors: cs.Query(1 + i), K: 10}
		got, err := a.Search(ctx, c, queries[i:i+1])
		require.NoError(t, err)
		want[i] = got[0]
	}
	end := time.Now().Add(time.Duration(runtimetest.Env("PLAID_GPU_STRESS", 1)) * time.Second)
	var searches, batched atomic.Int64
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for r := 0; time.Now().Before(end); r++ {
				i := (g*7 + r) % len(queries)
				got, err := a.Search(ctx, c, queries[i:i+1])
				if err != nil {
					t.Error(err)
					return
				}
				searches.Add(1)
				batched.Add(got[0].Stats.Batched)
				for j := range got[0].Docs {
					if got[0].Docs[j] != want[i].Docs[j] || got[0].Scores[j] != want[i].Scores[j] {
						t.Errorf("query %d: %v, want %v", i, got[0].Docs, want[i].Docs)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d searches, %d of them batched", searches.Load(), batched.Load())
}

// synthetic is a corpus of random bytes in chunks of 65,536 documents.
func synthetic(docs, shortest, longest, k int) *corpus {
	cs := kerneltest.New(kerneltest.Config{K: k, CodeBytes: 2, DimScale: true, Aligned: true})
	chunks := make([]*kernels.Chunk, (docs+65535)/65536)
	_ = parallel.Do(ctx, len(chunks), parallel.Threads(0, len(chunks)), func(i int) error {
		rng, left := rand.New(rand.NewPCG(1, uint64(i))), docs-65536*i
		ch := &kernels.Chunk{Offsets: []uint32{0}, CodeBytes: 2}
		n := uint32(0)
		for range min(left, 65536) {
			n += uint32(shortest + rng.IntN(longest-shortest+1))
			ch.Offsets = append(ch.Offsets, n)
		}
		fill := func(bytes int) []byte {
			b := make([]uint64, (bytes+7)/8)
			for i := range b {
				b[i] = rng.Uint64()
			}
			return runtime.Bytes(b)[:bytes]
		}
		ch.Codes, ch.Residuals, ch.Factors = fill(2*int(n)), fill(32*int(n)), fill(2*int(n))
		for t := range int(n) {
			if k < 1<<16 {
				cs.SetCode(ch, t, int(ch.Code(t))%k)
			}
			kerneltest.SetFactor(ch, t, 16000+int16(ch.Factors[2*t])*20)
		}
		chunks[i] = ch
		return nil
	})
	c := newCorpus(cs.Codec, chunks...)
	return c
}

func BenchmarkGPUSearch(b *testing.B) {
	d := runtimetest.OpenGPU(b)
	for _, w := range []struct {
		name                  string
		docs, short, long, k  int
		batch, top, lq, limit int
		stream                bool
	}{
		{"1M-docs/one", 1_000_000, 40, 120, 65536, 1, 10, 32, 0, false},
		{"1M-docs/batch-32", 1_000_000, 40, 120, 65536, 32, 10, 32, 0, false},
		{"1M-docs/probe-8", 1_000_000, 40, 120, 65536, 1, 10, 32, 8, false},
		{"1M-docs/streamed", 1_000_000, 40, 120, 65536, 1, 10, 32, 0, true},
		{"600M-tokens/one", 7_500_000, 40, 120, 65536, 1, 10, 32, 0, false},
		{"600M-tokens/batch-32", 7_500_000, 40, 120, 65536, 32, 10, 32, 0, false},
		{"600M-tokens/probe-8", 7_500_000, 40, 120, 65536, 1, 10, 32, 8, false},
		{"scifact-size/one", 5183, 150, 310, 16384, 1, 100, 32, 0, false},
		{"scifact-size/batch-300", 5183, 150, 310, 16384, 300, 100, 32, 0, false},
	} {
		b.Run(w.name, func(b *testing.B) {
			c := syntheticOnce(w.docs, w.short, w.long, w.k)
			start := time.Now()
			a, err := attach(ctx, d, c, kernels.AttachOptions{}, pieceBytes, w.stream)
			require.NoError(b, err)
			defer a.Close()
			attach := time.Since(start)
			rng := rand.New(rand.NewPCG(5, 5))
			qs := make([]kernels.DeviceQuery, w.batch)
			for i := range qs {
				qs[i] = kernels.DeviceQuery{Vectors: kerneltest.UnitVectors(rng, w.lq, 128), K: w.top, Probes: w.limit}
			}
			var stats kernels.DeviceStats
			search := func() {
				got, err := a.Search(ctx, c, qs)
				require.NoError(b, err)
				for i := range got {
					stats.Add(got[i].Stats)
				}
			}
			search()
			stats = kernels.DeviceStats{}
			for b.Loop() {
				search()
			}
			n := float64(b.N * w.batch)
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(n/seconds, "queries/s")
			b.ReportMetric(float64(a.tokens)*n/seconds/1e9, "Gtokens/s")
			us := func(t time.Duration) float64 { return float64(t.Microseconds()) / n }
			b.ReportMetric(us(stats.Times.Transfer), "transfer-µs")
			b.ReportMetric(us(stats.Times.Centroids), "cent-µs")
			b.ReportMetric(us(stats.Times.Probe), "probe-µs")
			b.ReportMetric(us(stats.Times.Scan), "scan-µs")
			b.ReportMetric(us(stats.Times.TopK), "topk-µs")
			b.ReportMetric(us(stats.Times.Fine), "fine-µs")
			b.ReportMetric(float64(stats.Retried)/n, "retried")
			b.ReportMetric(float64(stats.InDoubt)/n, "doubt")
			b.ReportMetric(attach.Seconds(), "attach-s")
		})
	}
}

var syntheticKept struct {
	key [4]int
	c   *corpus
}

func syntheticOnce(docs, short, long, k int) *corpus {
	if key := [4]int{docs, short, long, k}; syntheticKept.key != key {
		syntheticKept.c, syntheticKept.key = synthetic(docs, short, long, k), key
	}
	return syntheticKept.c
}

// An engine on a GPU follows additions, deletions and compaction as one on the
// processor does, resident and streamed.
func TestGPUFollowsTheIndex(t *testing.T) {
	for _, piece := range []int64{0, 1 << 12} {
		t.Run(fmt.Sprintf("piece=%d", piece), func(t *testing.T) {
			compareEngines(t, attaching{runtimetest.OpenGPU(t), piece}, 3, 100)
		})
	}
}

// Documents of 100,000 tokens, few and many query tokens, and the widest fields: at
// the ends of what scans and fine scores are made for.
func TestGPULongDocuments(t *testing.T) {
	effort.SkipBrief(t, "the oracle takes minutes, on one goroutine")
	d := runtimetest.OpenGPU(t)
	for _, x := range []struct{ dim, nbits, lq int }{{128, 2, 8}, {128, 2, 64}, {128, 2, 128}, {256, 8, 32}, {128, 1, 33}, {96, 4, 32}} {
		cs := kerneltest.New(kerneltest.Config{Dim: x.dim, Nbits: x.nbits, K: 300, CodeBytes: 2, Lengths: []int{3, 100_000, 0, 17, 5000, 16, 1}, DimScale: true})
		c := newCorpus(cs.Codec, cs.Chunk)
		a, err := Attach(ctx, d, c, kernels.AttachOptions{})
		require.NoError(t, err)
		q := kernels.DeviceQuery{Vectors: cs.Query(x.lq), K: 4}
		got, err := a.Search(ctx, c, []kernels.DeviceQuery{q})
		require.NoError(t, err)
		requireBest(t, c, &q, got[0], nil, 4e-4)
		require.NoError(t, a.Close())
	}
}

// A device without room for an index says so; with a limit it is streamed; and once
// there is room it is taken.
func TestGPUOutOfMemory(t *testing.T) {
	d := runtimetest.OpenGPU(t)
	rng := rand.New(rand.NewPCG(8, 8))
	cs := kerneltest.New(kerneltest.Config{CodeBytes: 2, K: 100, Lengths: lengths(rng, 2000, 60)})
	c := newCorpus(cs.Codec, cs.Chunk)
	var taken []driver.Mem
	require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) error {
		for bytes := int64(64 << 30); bytes >= 1<<20; bytes /= 2 {
			for {
				m, err := rt.Driver.Alloc(bytes)
				if err != nil {
					break
				}
				taken = append(taken, m)
			}
		}
		return nil
	}))
	_, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	_, err = Attach(ctx, d, c, kernels.AttachOptions{Memory: 64 << 20})
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) error {
		for _, m := range taken {
			if err := rt.Driver.Free(m); err != nil {
				return err
			}
		}
		return nil
	}))
	a, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.NoError(t, err)
	q := kernels.DeviceQuery{Vectors: cs.Query(32), K: 10}
	got, err := a.Search(ctx, c, []kernels.DeviceQuery{q})
	require.NoError(t, err)
	requireBest(t, c, &q, got[0], nil, 4e-4)
	require.NoError(t, a.Close())
}
