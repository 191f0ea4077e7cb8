package search

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/searchtest"
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
