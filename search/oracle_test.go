package search

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

func TestVersusOracle(t *testing.T) {
	for i, c := range []struct {
		dim, nbits int
		scales     bool
	}{ // every second one in the short form
		{128, 2, false}, {128, 4, true}, {96, 1, false}, {64, 8, false}, {3, 1, true}, {17, 2, true}, {48, 8, true}, {1, 2, false}, {5, 4, false}, {96, 1, true},
	} {
		if !effort.Long() && i%2 == 0 {
			continue
		}
		t.Run(fmt.Sprintf("dim=%d,nbits=%d,scales=%v", c.dim, c.nbits, c.scales), func(t *testing.T) {
			m := newMaker(1, c.dim, 24)
			docs := m.Docs("d", 160, 6)
			ix := searchtest.Build(t, c.dim, docs, &index.BuildOptions{Nbits: c.nbits, NoDimScales: !c.scales, NoCentroidScales: !c.scales})
			o := newOracle(t, searchtest.Snapshot(t, ix))
			require.Equal(t, 149, len(o.ids)) // ten are empty, and a copy of one of them
			e := on(t, ix, 2)
			for i, tokens := range []int{1, 4, 32, 37} {
				q := m.query(tokens)
				if i == 2 { // a document as a query finds itself and its copy
					q.Vectors = docs[6].Tokens
				}
				list, allowed := []string{}, map[string]bool{}
				for d := i; d < len(docs); d += 3 {
					list = append(list, docs[d].ID)
					allowed[docs[d].ID] = true
				}
				all := search(t, e, q, Options{K: 100, Mode: Exhaustive}).Hits
				o.check(t, q, all, 100, nil)
				some := search(t, e, q, Options{K: 100, Mode: Candidates, Candidates: list}).Hits
				o.check(t, q, some, 100, allowed)
				for _, k := range []int{1, 10, 100} {
					require.Equal(t, all[:k], search(t, e, q, Options{K: k, Mode: Exhaustive}).Hits)
					require.Equal(t, all[:k], search(t, e, q, with(wide, func(o *Options) { o.K = k })).Hits, "pruned with wide-open budgets")
					require.Equal(t, some[:min(k, len(some))], search(t, e, q, Options{K: k, Mode: Candidates, Candidates: list}).Hits)
				}
			}
		})
	}
}

// Budgets that are all below the number of documents, so that each stage of the
// pruned plan does something, find almost the same.
func TestPrunedStages(t *testing.T) {
	m := newMaker(2, 32, 60)
	ix := searchtest.Build(t, 32, m.Docs("d", 1500, 8), nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 2)
	found, wanted := 0, 0
	for range effort.Cases(8, 20) {
		q := m.query(8)
		res := search(t, e, q, Options{K: 10, Probes: 24, Approx: 400, Exact: 150})
		require.Equal(t, map[string]int{"probe": 1}, res.Stats.Plans)
		require.EqualValues(t, 150, res.Stats.ExactDocs)
		require.LessOrEqual(t, res.Stats.ApproxDocs, int64(400))
		top := map[uint32]bool{}
		for _, w := range o.rank(q, nil)[:10] {
			top[w.ordinal] = true
		}
		for _, h := range res.Hits {
			require.InDelta(t, o.score(q, h.Ordinal), h.Score, tolerance(q, 32))
			if top[h.Ordinal] {
				found++
			}
			wanted++
		}
	}
	require.GreaterOrEqual(t, float64(found), 0.95*float64(wanted))
}

// Selecting many probes and few must agree.
func TestProbeSelection(t *testing.T) {
	m := newMaker(3, 16, 30)
	ix := searchtest.Build(t, 16, m.Docs("d", 400, 6), &index.BuildOptions{Centroids: 200})
	snap := searchtest.Snapshot(t, ix)
	q := m.query(5)
	r := testRun(snap, 1)
	require.NoError(t, r.prepare(q.Vectors, nil, table{complete: true}))
	s, stride := r.query.Scores()
	for _, n := range []int{1, 2, maxInsertProbes, maxInsertProbes + 1, 199, 200} {
		var a, b prober
		a.selected, b.selected = n, n
		a.best, b.best = make([]kernels.CentroidScore, 5*n), make([]kernels.CentroidScore, 5*n)
		r.query.TopCentroids(a.best, n)
		require.NoError(t, b.selectColumns(context.Background(), s, stride, 5, 200))
		require.Equal(t, a.best, b.best, "%d probes", n)
		for token := range 5 {
			for c := range 200 { // the last one bounds all that are not there
				last := a.best[(token+1)*n-1]
				v := s[c*stride+token]
				taken := false
				for _, p := range a.best[token*n : (token+1)*n] {
					taken = taken || p.Centroid == uint32(c)
				}
				require.True(t, taken || v < last.Score || v == last.Score && uint32(c) > last.Centroid)
			}
		}
	}
}

func TestDeterminism(t *testing.T) {
	ctx := context.Background()
	m := newMaker(4, 64, 40)
	docs := m.Docs("d", 500, 8)
	ix := searchtest.Build(t, 64, docs, nil)
	var queries []Query
	for i := range effort.Cases(6, 12) {
		queries = append(queries, m.query(1+5*i))
	}
	options := []Options{
		{K: 10}, {K: 100}, {K: 7, Mode: Exhaustive}, {K: 5, Probes: 3, Approx: 60, Exact: 20}, {Probes: 1},
	}
	type key struct{ q, o int }
	want := map[key][]Hit{}
	one := on(t, ix, 1)
	for qi, q := range queries {
		for oi, o := range options {
			want[key{qi, oi}] = search(t, one, q, o).Hits
		}
	}
	same := func(t *testing.T, e *Engine) {
		t.Helper()
		for oi, o := range options {
			for qi, q := range queries { // other options and k in between
				require.Equal(t, want[key{qi, oi}], search(t, e, q, o).Hits, "query %d, options %d", qi, oi)
				search(t, e, queries[(qi+3)%len(queries)], Options{K: 1 + 40*oi})
			}
		}
	}
	for threads := 1; threads <= 8; threads++ {
		if !effort.Long() && threads != 2 && threads != 5 {
			continue
		}
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) { same(t, on(t, ix, threads)) })
	}
	t.Run("batch", func(t *testing.T) {
		for _, threads := range []int{1, 3, 8} {
			e := on(t, ix, threads)
			for oi, o := range options {
				for size := 0; size <= len(queries); size++ {
					if !effort.Long() && size%4 != 1 {
						continue
					}
					results, err := e.SearchBatch(ctx, queries[:size], o)
					require.NoError(t, err)
					require.Len(t, results, size)
					for qi, r := range results {
						require.Equal(t, want[key{qi, oi}], r.Hits, "batch of %d, query %d", size, qi)
					}
				}
			}
		}
	})

	// Three pictures of the same documents: before any change, after additions
	// and deletions that cancel out, and after compaction.
	before := searchtest.Snapshot(t, ix)
	added := m.Docs("x", 40, 8)
	_, err := ix.Add(ctx, searchtest.Source(t, 64, added), nil)
	require.NoError(t, err)
	var gone []string
	for _, d := range added {
		gone = append(gone, d.ID)
	}
	t.Run("snapshot after add", func(t *testing.T) { same(t, at(t, before, 2)) })
	n, missing, err := ix.Delete(ctx, gone)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.Equal(t, index.Affected{Documents: len(added)}, n)
	_, _, err = ix.Delete(ctx, []string{docs[0].ID})
	require.NoError(t, err)
	t.Run("snapshot after delete", func(t *testing.T) { same(t, at(t, before, 2)) })

	o := newOracle(t, searchtest.Snapshot(t, ix))
	deleted := map[key][]Hit{}
	for qi, q := range queries {
		for oi, opt := range options {
			deleted[key{qi, oi}] = search(t, one, q, opt).Hits
		}
		o.check(t, q, search(t, one, q, Options{K: 1000, Mode: Exhaustive}).Hits, 1000, nil)
	}
	require.NoError(t, ix.Compact(ctx, nil))
	t.Run("snapshot after compact", func(t *testing.T) { same(t, at(t, before, 2)) })
	t.Run("compacted", func(t *testing.T) {
		for qi, q := range queries {
			for oi, opt := range options {
				require.Equal(t, deleted[key{qi, oi}], search(t, one, q, opt).Hits)
			}
		}
	})
}

// Copies of a document score the same to the bit and come in the order in which
// they were added, also where they are cut off.
func TestTies(t *testing.T) {
	m := newMaker(5, 24, 10)
	docs := m.Docs("d", 120, 5)
	same := m.Tokens(9)
	for i := range docs {
		if i%3 == 0 {
			docs[i].Tokens = same
		}
	}
	ix := searchtest.Build(t, 24, docs, nil)
	for _, threads := range []int{1, 4} {
		e := on(t, ix, threads)
		for _, mode := range []Mode{Pruned, Exhaustive} {
			for _, k := range []int{1, 7, 39, 40} {
				res := search(t, e, Query{Vectors: same}, Options{K: k, Mode: mode})
				require.Len(t, res.Hits, k)
				for i, h := range res.Hits {
					require.Equal(t, fmt.Sprintf("d%d", 3*i), h.ID)
					require.Equal(t, res.Hits[0].Score, h.Score)
				}
			}
		}
	}
}

// All products negative: maxima start at −∞, not at 0.
func TestNegativeProducts(t *testing.T) {
	const dim = 12
	m := newMaker(6, dim, 5)
	center := m.Vector(nil, 1)
	var docs []vectors.Document
	for i := range 60 {
		d := vectors.Document{ID: fmt.Sprint("d", i)}
		for range 1 + i%5 {
			d.Tokens = append(d.Tokens, m.Vector(center, 0.3)...)
		}
		docs = append(docs, d)
	}
	ix := searchtest.Build(t, dim, docs, nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	q := Query{}
	for range 6 {
		for _, v := range m.Vector(center, 0.3) {
			q.Vectors = append(q.Vectors, -v)
		}
	}
	for _, mode := range []Mode{Pruned, Exhaustive} {
		res := search(t, on(t, ix, 2), q, Options{K: 60, Mode: mode})
		o.check(t, q, res.Hits, 60, nil)
		require.Negative(t, res.Hits[0].Score)
	}
}

// Queries are scaled to unit length: of extreme lengths they score as at length 1.
func TestExtremeQueryScales(t *testing.T) {
	m := newMaker(8, 32, 20)
	ix := searchtest.Build(t, 32, m.Docs("d", 200, 5), nil)
	e := on(t, ix, 1)
	q := m.query(8)
	want := search(t, e, q, Options{K: 20, Mode: Exhaustive})
	for _, exp := range []int{-60, -40, -20, -10, 10, 20, 30, 39} {
		scaled := Query{}
		for _, v := range q.Vectors {
			scaled.Vectors = append(scaled.Vectors, float32(math.Ldexp(float64(v), exp)))
		}
		for _, mode := range []Mode{Exhaustive, Pruned} {
			res := search(t, e, scaled, Options{K: 20, Mode: mode})
			require.Equal(t, want.Hits, res.Hits, "2^%d, %v", exp, mode)
		}
	}
}
