package search

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

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
		paths, err := index.SetPaths(folder)
		require.NoError(b, err)
		set, err := index.OpenSet(ctx, paths, nil)
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
