package cuda_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cuda"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// openGPU opens the devices that PLAID_GPU names, cuda:0 if it names none, or skips
// the test.
func openGPU(t testing.TB) kernels.Device {
	name := os.Getenv("PLAID_GPU")
	if name == "" {
		name = "cuda:0"
	}
	d, _, err := kernels.OpenDevice(context.Background(), name)
	runtimetest.NeedGPU(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// larger is a collection and, behind it, documents of it drawn at random, each
// vector with noise of half its length (the same as cmd/studies/growthnoise.go).
type larger struct {
	vectors.Source
	from []int32
	pool []float32
}

func newLarger(base vectors.Source, tokens int64) *larger {
	rng := rand.New(rand.NewPCG(1, 0))
	g := &larger{Source: base, pool: make([]float32, 1<<20+base.Dim())}
	for i := range g.pool {
		g.pool[i] = float32(rng.NormFloat64())
	}
	n := int64(0)
	for i := 0; n < tokens; i++ {
		at := i
		if i >= base.Len() {
			at = rng.IntN(base.Len())
		}
		g.from = append(g.from, int32(at))
		n += int64(base.Rows(at))
	}
	return g
}

func (g *larger) Len() int        { return len(g.from) }
func (g *larger) Rows(i int) int  { return g.Source.Rows(int(g.from[i])) }
func (g *larger) ID(i int) string { return strconv.Itoa(i) }

func (g *larger) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		var tokens []float32
		dim := g.Dim()
		scale := float32(0.5 / math.Sqrt(float64(dim)))
		for i := from; i < to; i++ {
			at := int(g.from[i])
			for d, err := range g.Source.Docs(ctx, at, at+1) {
				if err != nil {
					yield(vectors.Document{}, err)
					return
				}
				tokens = append(tokens[:0], d.Tokens...)
			}
			if i >= g.Source.Len() {
				rng := rand.New(rand.NewPCG(1, uint64(i+1)))
				for v := tokens; len(v) > 0; v = v[dim:] {
					for j, x := range g.pool[rng.IntN(1<<20):][:dim] {
						v[j] += scale * x
					}
				}
			}
			if !yield(vectors.Document{ID: g.ID(i), Tokens: tokens}, nil) {
				return
			}
		}
	}
}

// grownIndex is an index of so many tokens, made of that which PLAID_INDEX names,
// in the folder of PLAID_GROWN, and kept there.
func grownIndex(t testing.TB, d kernels.Device, tokens int64) string {
	base, dir := os.Getenv("PLAID_INDEX"), os.Getenv("PLAID_GROWN")
	if base == "" || dir == "" {
		t.Skip("needs PLAID_INDEX, and PLAID_GROWN, a folder")
	}
	path := filepath.Join(dir, fmt.Sprintf("%d.plaid", tokens))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	start := time.Now()
	_, err := index.Build(context.Background(), path, newLarger(decoded(t, base), tokens), &index.BuildOptions{Device: d, Memory: 24 << 30})
	require.NoError(t, err)
	t.Logf("%d tokens built in %v", tokens, time.Since(start))
	return path
}

// The GPU finds what the processor finds in a large collection: all of it by
// scanning, nearly all by probing. The error that scans are seen to have is within
// half of its bound.
func TestGPUGrown(t *testing.T) {
	millions, err := strconv.ParseFloat(os.Getenv("PLAID_GROWN_MILLIONS"), 64)
	if err != nil {
		t.Skip("needs PLAID_GROWN_MILLIONS, of tokens")
	}
	d := openGPU(t)
	ctx := context.Background()
	ix, err := index.Open(ctx, grownIndex(t, d, int64(millions*1e6)), nil)
	require.NoError(t, err)
	defer ix.Close()
	cpu, err := search.New(ctx, ix, nil)
	require.NoError(t, err)
	defer cpu.Close()
	gpu, err := search.New(ctx, ix, &search.EngineOptions{Device: d})
	require.NoError(t, err)
	defer gpu.Close()
	qs := queriesOf(t)[:10]
	o := search.Options{K: 100, Mode: search.Exhaustive}
	want, err := cpu.SearchBatch(ctx, qs, o)
	require.NoError(t, err)
	got, err := gpu.SearchBatch(ctx, qs, o)
	require.NoError(t, err)
	probed, err := gpu.SearchBatch(ctx, qs, search.Options{K: 100, Probes: 8})
	require.NoError(t, err)
	swaps, lost, share := 0, 0, 0.0
	for i := range want {
		require.Len(t, got[i].Hits, len(want[i].Hits))
		there := map[string]bool{}
		for _, h := range probed[i].Hits {
			there[h.ID] = true
		}
		for j, h := range want[i].Hits {
			require.InDelta(t, h.Score, got[i].Hits[j].Score, 1e-4, "query %d, place %d", i, j)
			if h.ID != got[i].Hits[j].ID {
				swaps++
			}
			if !there[h.ID] {
				lost++
			}
		}
		share = max(share, got[i].Stats.BoundShare)
	}
	require.LessOrEqual(t, share, 0.5)
	t.Logf("%d of %d places differ; probing lost %d; share of the bound %.3f", swaps, len(qs)*100, lost, share)
}

func queriesOf(t testing.TB) (qs []search.Query) {
	file := os.Getenv("PLAID_QUERIES")
	if file == "" {
		t.Skip("needs PLAID_QUERIES")
	}
	src := open(t, vectors.Files{Vectors: file})
	for q, err := range src.Docs(context.Background(), 0, src.Len()) {
		require.NoError(t, err)
		qs = append(qs, search.Query{Vectors: append([]float32(nil), q.Tokens...)})
	}
	return qs
}

// BenchmarkGPUEngine searches the index that PLAID_INDEX names, grown to
// PLAID_GROWN_MILLIONS of tokens where that is set, with PLAID_QUERIES.
func BenchmarkGPUEngine(b *testing.B) {
	path := os.Getenv("PLAID_INDEX")
	if path == "" {
		b.Skip("needs PLAID_INDEX and PLAID_QUERIES")
	}
	ctx := context.Background()
	d := openGPU(b)
	if millions, err := strconv.ParseFloat(os.Getenv("PLAID_GROWN_MILLIONS"), 64); err == nil {
		path = grownIndex(b, d, int64(millions*1e6))
	}
	ix, err := index.Open(ctx, path, nil)
	require.NoError(b, err)
	defer ix.Close()
	e, err := search.New(ctx, ix, &search.EngineOptions{Device: d})
	require.NoError(b, err)
	defer e.Close()
	qs := queriesOf(b)
	for len(qs) < 300 {
		qs = append(qs, qs...)
	}
	qs = qs[:300]
	for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
		for _, batch := range []int{1, 32, len(qs)} {
			b.Run(fmt.Sprintf("%v/batch=%d", mode, batch), func(b *testing.B) {
				var stats search.Stats
				n := 0
				for b.Loop() {
					lo := n % (len(qs) - batch + 1)
					got, err := e.SearchBatch(ctx, qs[lo:lo+batch], search.Options{K: 100, Mode: mode})
					require.NoError(b, err)
					for i := range got {
						stats.Add(got[i].Stats)
					}
					n += batch
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "queries/s")
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/query")
				us := func(t time.Duration) float64 { return math.Round(float64(t.Nanoseconds())/float64(n)) / 1000 }
				s, t := stats.Device, stats.Device.Times
				b.Logf("plans %v; of a query: wait %g, transfer %g, centroids %g, probe %g, scan %g, choice %g, fine %g, device %g, all %g µs; refined %.1f, candidates %.0f, retried %d, in doubt %d, widened %d, share %.3f",
					stats.Plans, us(t.Wait), us(t.Transfer), us(t.Centroids), us(t.Probe), us(t.Scan), us(t.TopK), us(t.Fine), us(t.Total), us(b.Elapsed()),
					float64(s.RefinedDocs)/float64(n), float64(s.Candidates)/float64(n), s.Retried, s.InDoubt, s.Widened, s.BoundShare)
			})
		}
	}
}

// Several GPUs find what one finds, to the bit.
func TestGPUSeveralDevices(t *testing.T) {
	ctx := context.Background()
	all, _, err := kernels.OpenDevice(ctx, "cuda:all")
	runtimetest.NeedGPU(t, err)
	if all.Info().Name == "cuda:0" {
		require.NoError(t, all.Close())
		t.Skip("needs two GPUs")
	}
	require.NoError(t, all.Close())
	rng := rand.New(rand.NewPCG(3, 4))
	var docs []vectors.Document
	for i := range 6000 {
		docs = append(docs, vectors.Document{ID: strconv.Itoa(i), Tokens: kerneltest.UnitVectors(rng, rng.IntN(40), 64)})
	}
	src, err := vectors.FromDocuments(64, docs)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "all.plaid")
	_, err = index.Build(ctx, path, src, nil)
	require.NoError(t, err)
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	defer ix.Close()
	var qs []search.Query
	for range 40 {
		qs = append(qs, search.Query{Vectors: kerneltest.UnitVectors(rng, 1+rng.IntN(64), 64)})
	}
	find := func(device string, o search.Options) [][]search.Hit {
		d, _, err := kernels.OpenDevice(ctx, device)
		require.NoError(t, err)
		defer d.Close()
		e, err := search.New(ctx, ix, &search.EngineOptions{Device: d})
		require.NoError(t, err)
		defer e.Close()
		got, err := e.SearchBatch(ctx, qs, o)
		require.NoError(t, err)
		var hits [][]search.Hit
		for i := range got {
			hits = append(hits, got[i].Hits)
		}
		return hits
	}
	for _, o := range []search.Options{{K: 10, Mode: search.Exhaustive}, {K: 1000}, {K: 100, Filter: search.Only("1", "5999", "300", "17")}} {
		want := find("cuda:0", o)
		for _, name := range []string{"cuda:all", "cuda:1,cuda:0", "cuda:1"} {
			require.Equal(t, want, find(name, o), "%s", name)
		}
	}
}
