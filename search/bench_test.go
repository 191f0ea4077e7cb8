package search

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// BenchmarkCranfield searches the 1,400 documents of Cranfield (235,915 tokens,
// 2 bits) with its 225 questions of 32 tokens, one after another on one core.
func BenchmarkCranfield(b *testing.B) {
	ix := cranfieldIndex(b)
	qs := batch(cranfieldQueries(b))
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"pruned/k=10", Options{K: 10}},
		{"pruned/k=100", Options{K: 100}},
		{"probed/k=10", Options{K: 10, Probes: 4}},
		{"exhaustive/k=10", Options{K: 10, Mode: Exhaustive}},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := on(b, ix, 1)
			times := make([]time.Duration, 0, b.N)
			var s Stats
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				res, err := e.Search(context.Background(), qs[i%len(qs)], c.o)
				if err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(start))
				s.Add(res.Stats)
				i++
			}
			slices.Sort(times)
			at := func(p int) float64 { return times[min(len(times)*p/100, len(times)-1)].Seconds() * 1e3 }
			b.ReportMetric(at(50), "p50-ms")
			b.ReportMetric(at(95), "p95-ms")
			n := float64(s.Queries)
			b.ReportMetric(s.Times.Centroids.Seconds()*1e3/n, "centroids-ms")
			b.ReportMetric(s.Times.Probe.Seconds()*1e3/n, "probe-ms")
			b.ReportMetric(s.Times.Approx.Seconds()*1e3/n, "approx-ms")
			b.ReportMetric(s.Times.Exact.Seconds()*1e3/n, "exact-ms")
			b.ReportMetric(s.Times.Refine.Seconds()*1e3/n, "refine-ms")
		})
	}
}

// BenchmarkMatches is what it costs to tell the matches of ten hits of 200 tokens on average
// for a query of 32, by the difference to a search without.
func BenchmarkMatches(b *testing.B) {
	m := newMaker(1, 128, 20)
	ix := searchtest.Build(b, 128, m.Docs("d", 100, 200), nil)
	e := on(b, ix, 1)
	q := m.query(32)
	for name, matches := range map[string]bool{"without": false, "with": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				search(b, e, q, Options{K: 10, Matches: matches})
			}
		})
	}
}

// grown is Cranfield several times, each copy of a token vector moved a little: more
// documents with about the same distribution.
func grown(b *testing.B, copies int) []vectors.Document {
	m := searchtest.New(1, 128, 1)
	var docs []vectors.Document
	for i := range copies {
		for _, d := range searchtest.Load(b, cranfieldFiles(b)) {
			moved := vectors.Document{ID: fmt.Sprintf("%s-%d", d.ID, i)}
			for t := 0; t < len(d.Tokens); t += 128 {
				if i == 0 {
					moved.Tokens = d.Tokens
					break
				}
				moved.Tokens = append(moved.Tokens, m.Vector(d.Tokens[t:t+128], 0.3)...)
			}
			docs = append(docs, moved)
		}
	}
	return docs
}

// BenchmarkMulti compares one index of 4 × Cranfield (944,000 tokens, 2 bits, 8,192 centroids) with 2, 4
// and 16 that it was split into by hash: each query is asked of both, one after the other,
// in turns, on one core. The figures that count are the ratios.
func BenchmarkMulti(b *testing.B) {
	ctx := context.Background()
	dir := b.TempDir()
	path := filepath.Join(dir, "one.plaid")
	_, err := index.Build(ctx, path, searchtest.Source(b, 128, grown(b, 4)), &index.BuildOptions{Centroids: 8192, SampleDocs: 600, Iterations: 1})
	require.NoError(b, err)
	one, err := index.Open(ctx, path, nil)
	require.NoError(b, err)
	defer one.Close()
	snap := searchtest.Snapshot(b, one)
	qs := batch(cranfieldQueries(b))
	e := on(b, one, 1)
	for _, n := range []int{2, 4, 16} {
		folder := filepath.Join(dir, fmt.Sprint(n))
		_, err := index.Split(ctx, snap, folder, n, index.ByHash, nil)
		require.NoError(b, err)
		paths, err := index.ShardPaths(folder)
		require.NoError(b, err)
		set, err := index.OpenShards(ctx, paths, nil)
		require.NoError(b, err)
		defer set.Close()
		m := multi(b, set, 1)
		for _, o := range []Options{{K: 10}, {K: 100}, {K: 10, Mode: Exhaustive}} {
			b.Run(fmt.Sprintf("%d/%v/k=%d", n, o.Mode, o.K), func(b *testing.B) {
				var times [2][]time.Duration
				searchers := []Searcher{e, m}
				i := 0
				for _, s := range searchers { // pages and checksums
					for _, q := range qs[:40] {
						_, err := s.Search(ctx, q, o)
						require.NoError(b, err)
					}
				}
				for b.Loop() {
					for j := range searchers {
						which := (i + j) % 2
						start := time.Now()
						if _, err := searchers[which].Search(ctx, qs[i/2%len(qs)], o); err != nil {
							b.Fatal(err)
						}
						times[which] = append(times[which], time.Since(start))
					}
					i++
				}
				for _, t := range times {
					slices.Sort(t)
				}
				at := func(which, p int) float64 { return times[which][len(times[which])*p/100].Seconds() * 1e3 }
				b.ReportMetric(at(0, 50), "one-ms")
				b.ReportMetric(at(1, 50), "parts-ms")
				b.ReportMetric(at(1, 50)/at(0, 50), "ratio")
				b.ReportMetric(at(1, 10)/at(0, 10), "ratio-p10") // a busy machine disturbs the fast ones least
			})
		}
	}
}

// million are documents that are made when they are read: tokens around a few topics,
// and payloads with a field of 100 values, one of as many as documents, and text.
type million struct{ docs, tokens, dim int }

func (m million) Len() int        { return m.docs }
func (m million) Dim() int        { return m.dim }
func (m million) Rows(int) int    { return m.tokens }
func (m million) ID(i int) string { return fmt.Sprintf("doc-%07d", i) }
func (m million) Close() error    { return nil }
func (m million) Docs(_ context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		topics := rand.New(rand.NewPCG(1, 2))
		table := make([]float32, 4096*m.dim)
		for i := range table {
			table[i] = float32(topics.NormFloat64())
		}
		d := vectors.Document{Tokens: make([]float32, m.tokens*m.dim)}
		for i := from; i < to; i++ {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for t := range m.tokens {
				topic := rng.IntN(4096) * m.dim
				for j := range m.dim {
					d.Tokens[t*m.dim+j] = table[topic+j] + 0.3*float32(rng.NormFloat64())
				}
			}
			d.ID = m.ID(i)
			d.Payload = fmt.Appendf(nil, `{"percent":%d,"price":%.2f,"url":"https://example.org/articles/of/the/year/%07d","title":"Number %d of many","lang":"%s"}`,
				rng.IntN(100), rng.Float64()*1000, i, i, []string{"en", "de", "fr"}[i%3])
			if !yield(d, nil) {
				return
			}
		}
	}
}

// BenchmarkWhereMillion finds what conditions let through of a million documents of 16
// tokens, and searches them: with the condition found out for each search, and found
// once. The index takes minutes to build.
func BenchmarkWhereMillion(b *testing.B) {
	ctx := context.Background()
	m := million{docs: 1 << 20, tokens: 16, dim: 16}
	if !effort.Long() {
		m.docs = 20000
	}
	path := filepath.Join(b.TempDir(), "million.plaid")
	_, err := index.Build(ctx, path, m, &index.BuildOptions{Centroids: 4096, SampleDocs: 4000, Iterations: 2})
	require.NoError(b, err)
	ix := searchtest.Open(b, path)
	info, err := ix.Info(ctx)
	require.NoError(b, err)
	b.Logf("%d documents in %d runs: %d bytes of payload, %d of fields", info.Docs, len(searchtest.Snapshot(b, ix).State().FieldRuns), info.Sizes.Payload, info.Sizes.Fields)
	snap := searchtest.Snapshot(b, ix)
	e := at(b, snap, 1)
	maker := newMaker(1, m.dim, 4)
	q := Query{Vectors: maker.Tokens(32)}
	for _, text := range []string{
		"percent = 7", "price < 10", "percent BETWEEN 10 AND 59 AND price < 20", "lang = 'de' AND NOT percent > 2", "price > 500",
		"url = 'https://example.org/articles/of/the/year/0000777'", "title LIKE 'Number 77%'", "url LIKE '%/0007%'",
	} {
		c := bind(b, text)
		docs, err := snap.Select(ctx, c)
		require.NoError(b, err)
		b.Run(text, func(b *testing.B) {
			b.Run("select", func(b *testing.B) {
				best(b, func() error { _, err := snap.Select(ctx, c); return err })
				b.ReportMetric(float64(docs.GetCardinality()), "documents")
			})
			for name, f := range map[string]*Filter{"search": {Where: c}, "search prepared": Where(c)} {
				b.Run(name, func(b *testing.B) {
					best(b, func() error { _, err := e.Search(ctx, q, Options{Filter: f}); return err })
				})
			}
		})
	}
	b.Run("no filter", func(b *testing.B) {
		best(b, func() error { _, err := e.Search(ctx, q, Options{}); return err })
	})
}

// best reports also the shortest time, which other programs on the machine disturb
// least.
func best(b *testing.B, fn func() error) {
	shortest := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		if err := fn(); err != nil {
			b.Fatal(err)
		}
		shortest = min(shortest, time.Since(start))
	}
	b.ReportMetric(shortest.Seconds()*1e3, "best-ms")
}
