package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func TestBadQueries(t *testing.T) {
	ctx := context.Background()
	const dim = 16
	m := newMaker(30, dim, 10)
	e := on(t, searchtest.Build(t, dim, m.Docs("d", 40, 4), nil), 2)
	good := m.query(4)
	put := func(at int, v float32) Query {
		q := Query{Vectors: append([]float32(nil), good.Vectors...)}
		q.Vectors[at] = v
		return q
	}
	fill := func(v float32) Query {
		q := Query{Vectors: make([]float32, 4*dim)}
		for i := range q.Vectors {
			q.Vectors[i] = v
		}
		return q
	}
	for name, c := range map[string]struct {
		q    Query
		says []string
	}{
		"no tokens":        {Query{}, []string{"no tokens"}},
		"empty":            {Query{Vectors: []float32{}}, []string{"no tokens"}},
		"other dimension":  {Query{Vectors: make([]float32, 24)}, []string{"24 values", "dimension 16"}},
		"shorter":          {Query{Vectors: good.Vectors[:dim-1]}, []string{"15 values"}},
		"nan":              {put(2*dim+5, nan), []string{"token 2", "component 5", "NaN"}},
		"inf":              {put(3*dim, inf), []string{"token 3", "component 0", "+Inf"}},
		"minus inf":        {put(dim-1, -inf), []string{"token 0", "component 15", "-Inf"}},
		"all nan":          {fill(nan), []string{"token 0", "component 0"}},
		"all inf":          {fill(inf), []string{"token 0", "component 0"}},
		"too long":         {put(dim, 2e30), []string{"token 1", "2e+30"}},
		"masked nan":       {Query{Vectors: put(0, nan).Vectors, Mask: []bool{false, true, true, true}}, []string{"token 0"}},
		"mask of nothing":  {Query{Vectors: good.Vectors, Mask: make([]bool, 4)}, []string{"mask leaves no token"}},
		"short mask":       {Query{Vectors: good.Vectors, Mask: make([]bool, 3)}, []string{"4 tokens", "mask of 3"}},
		"long mask":        {Query{Vectors: good.Vectors, Mask: make([]bool, 5)}, []string{"mask of 5"}},
		"short weights":    {Query{Vectors: good.Vectors, Weights: make([]float32, 1)}, []string{"1 weights"}},
		"long weights":     {Query{Vectors: good.Vectors, Weights: make([]float32, 64)}, []string{"64 weights"}},
		"no weights":       {Query{Vectors: good.Vectors, Weights: []float32{}}, []string{"0 weights"}},
		"nan weight":       {Query{Vectors: good.Vectors, Weights: []float32{1, 1, nan, 1}}, []string{"weight of token 2", "NaN"}},
		"infinite weight":  {Query{Vectors: good.Vectors, Weights: []float32{1, -inf, 0, 1}}, []string{"weight of token 1", "-Inf"}},
		"excessive weight": {Query{Vectors: good.Vectors, Weights: []float32{1, 1, 1, 1e20}}, []string{"weight of token 3", "1e+20"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []Mode{Pruned, Exhaustive} {
				_, err := e.Search(ctx, c.q, Options{Mode: mode})
				require.ErrorIs(t, err, ErrQuery)
				for _, s := range c.says {
					require.ErrorContains(t, err, s)
				}
			}
			_, err := e.Explain(ctx, c.q, "d0", Options{})
			require.ErrorIs(t, err, ErrQuery)
			for range 5 { // the first bad one is named, whatever finishes first
				_, err = e.SearchBatch(ctx, []Query{good, good, c.q, good, c.q, {}}, Options{})
				require.ErrorIs(t, err, ErrQuery)
				require.ErrorContains(t, err, "query 2: ")
			}
		})
	}
	require.Len(t, search(t, e, good, Options{}).Hits, 10) // the engine has not suffered
}

func TestLongQueries(t *testing.T) {
	const dim = 8
	m := newMaker(31, dim, 10)
	ix := searchtest.Build(t, dim, m.Docs("d", 30, 4), &index.BuildOptions{Centroids: 16})
	o := newOracle(t, searchtest.Snapshot(t, ix))
	q := Query{}
	for len(q.Vectors) < effort.Cases(3000, 10_000)*dim {
		q.Vectors = append(q.Vectors, m.Tokens(100)...)
	}
	want := search(t, on(t, ix, 1), q, Options{K: 25, Mode: Exhaustive}).Hits
	o.check(t, q, want, 25, nil)
	for _, mode := range []Mode{Pruned, Exhaustive} {
		require.Equal(t, want, search(t, on(t, ix, 3), q, Options{K: 25, Mode: mode}).Hits)
	}

	// 2³⁰ bytes hold the scores of 2¹⁶ tokens and 2¹² centroids.
	var docs []vectors.Document
	m = newMaker(31, 2, 10)
	for i := range 50 {
		docs = append(docs, vectors.Document{ID: fmt.Sprint(i), Tokens: m.Tokens(100)})
	}
	ix = searchtest.Build(t, 2, docs, &index.BuildOptions{Centroids: 4096})
	long := Query{Vectors: make([]float32, (1<<16+1)*2)}
	_, err := on(t, ix, 1).Search(context.Background(), long, Options{})
	require.ErrorIs(t, err, ErrQuery)
	require.ErrorContains(t, err, "65537 tokens")
	require.ErrorContains(t, err, "4096 centroids")
	require.ErrorContains(t, err, "at most 65536")
}

// TestTinyQueries: where vectors are not scaled, those that are too short for the
// arithmetic of scores count as zeros; others keep the order that they give.
func TestTinyQueries(t *testing.T) {
	const dim = 64
	m := newMaker(37, dim, 20)
	docs := m.Docs("d", 300, 6)
	for _, unscaled := range []bool{false, true} {
		ix := searchtest.Build(t, dim, docs, &index.BuildOptions{Unnormalized: unscaled})
		e, snap := on(t, ix, 2), searchtest.Snapshot(t, ix)
		q := m.query(6)
		for _, mode := range []Mode{Pruned, Exhaustive} {
			want := ids(search(t, e, q, Options{Mode: mode}).Hits)
			for _, scale := range []float32{1e-12, 1e-18, 1e-24, 1e-36, 1e-43} {
				small := Query{Vectors: append([]float32(nil), q.Vectors...)}
				for i := range small.Vectors {
					small.Vectors[i] *= scale
				}
				hits := search(t, e, small, Options{Mode: mode}).Hits
				switch {
				case unscaled && scale < 1e-20:
					for _, h := range hits {
						require.Zero(t, h.Score, "%v, scale %g", mode, scale)
					}
				case scale > 1e-36: // else components are rounded
					require.Equal(t, want, ids(hits), "%v, scale %g, unscaled %v", mode, scale, unscaled)
				}
				if unscaled {
					copy(small.Vectors[:dim], q.Vectors)
					tokens, _, err := small.Tokens(snap)
					require.NoError(t, err)
					require.Equal(t, q.Vectors[:dim], tokens[:dim])
					for _, v := range tokens[dim:] {
						require.Equal(t, scale < 1e-20, v == 0)
					}
				}
			}
		}
	}
}

func TestMasks(t *testing.T) {
	const dim = 32
	m := newMaker(32, dim, 20)
	e := on(t, searchtest.Build(t, dim, m.Docs("d", 300, 6), nil), 2)
	for i := range 10 {
		q := m.query(12)
		q.Mask = make([]bool, 12)
		short := Query{}
		if i%2 == 1 {
			q.Weights = make([]float32, 12)
		}
		for s := range q.Mask {
			q.Mask[s] = m.Rand.IntN(2) == 0 || s == i
			if q.Weights != nil {
				q.Weights[s] = m.Rand.Float32()
			}
			if q.Mask[s] {
				short.Vectors = append(short.Vectors, q.Vectors[s*dim:(s+1)*dim]...)
				if q.Weights != nil {
					short.Weights = append(short.Weights, q.Weights[s])
				}
			}
		}
		for _, o := range []Options{{K: 20}, {K: 20, Mode: Exhaustive}, {Probes: 2, Exact: 30}} {
			a, b := search(t, e, q, o), search(t, e, short, o)
			require.Equal(t, b.Hits, a.Hits)
			require.Equal(t, b.Stats.QueryTokens, a.Stats.QueryTokens)
		}
	}
	q := m.query(12)
	all := Query{Vectors: q.Vectors, Mask: []bool{true, true, true, true, true, true, true, true, true, true, true, true}}
	require.Equal(t, search(t, e, q, Options{}).Hits, search(t, e, all, Options{}).Hits)
}

func TestWeights(t *testing.T) {
	const dim = 24
	m := newMaker(33, dim, 20)
	ix := searchtest.Build(t, dim, m.Docs("d", 250, 6), nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 2)
	for name, weights := range map[string][]float32{
		"ones":       {1, 1, 1, 1, 1, 1},
		"zeros":      {0, 0, 0, 0, 0, 0},
		"one zero":   {1, 0, 1, 1, 1, 1},
		"fractional": {0.1, 0.25, 1.75, 0.5, 1e-3, 2},
		"mixed":      {1, -1, 0.5, -0.25, 2, 0},
		"negative":   {-1, -2, -0.5, -1, -1, -0.1},
		"large":      {1e4, 1, 1, 1, 1, -1e4},
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				q := m.query(6)
				q.Weights = weights
				exact := search(t, e, q, Options{K: 30, Mode: Exhaustive})
				o.check(t, q, exact.Hits, 30, nil)
				require.Equal(t, exact.Hits, search(t, e, q, with(wide, func(o *Options) { o.K = 30 })).Hits)
				if name == "ones" {
					require.Equal(t, exact.Hits, search(t, e, Query{Vectors: q.Vectors}, Options{K: 30, Mode: Exhaustive}).Hits)
				}
				if name == "zeros" {
					require.Equal(t, []string{"d0", "d1", "d2"}, ids(exact.Hits[:3])) // all equal: order of insertion
				}
			}
		})
	}
}

// Documents near a query token of negative weight are the worst ones, so a
// search must not look for candidates there.
func TestNegativeWeightsProbeNothing(t *testing.T) {
	const dim = 16
	m := newMaker(34, dim, 12)
	ix := searchtest.Build(t, dim, m.Docs("d", 800, 3), nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 1)
	q := m.query(3)
	q.Weights = []float32{-1, -1, -1}
	res := search(t, e, q, Options{K: 10, Probes: 2, Exact: 200})
	require.Zero(t, res.Stats.Probed)
	require.EqualValues(t, 1, res.Stats.Widened)
	best := o.rank(q, nil)
	require.InDelta(t, best[0].score, res.Hits[0].Score, 0.05)

	q.Weights = []float32{1, -0.1, 0}
	require.LessOrEqual(t, search(t, e, q, Options{K: 10, Probes: 2, Exact: 200}).Stats.Probed, int64(2))
}

func TestZeroVectorToken(t *testing.T) {
	const dim = 24
	m := newMaker(35, dim, 20)
	ix := searchtest.Build(t, dim, m.Docs("d", 250, 6), nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 1)
	q := m.query(5)
	clear(q.Vectors[dim : 2*dim])
	for _, mode := range []Mode{Pruned, Exhaustive} {
		o.check(t, q, search(t, e, q, Options{K: 250, Mode: mode}).Hits, 250, nil)
	}
	clear(q.Vectors) // all zero: every document scores 0
	for _, opt := range []Options{{}, {Mode: Exhaustive}} {
		res := search(t, e, q, opt)
		require.Len(t, res.Hits, 10)
		for _, h := range res.Hits {
			require.InDelta(t, 0, h.Score, 1e-6)
		}
	}
	require.Equal(t, []string{"d0", "d1", "d2"}, ids(search(t, e, q, Options{Mode: Exhaustive}).Hits[:3]))
}

// Stored zero vectors match nothing: their products are 0.
func TestZeroVectorDocuments(t *testing.T) {
	const dim = 16
	m := newMaker(36, dim, 8)
	docs := m.Docs("d", 50, 4)
	docs[1].Tokens = make([]float32, 3*dim)
	docs[2].Tokens = append(make([]float32, dim), docs[0].Tokens...)
	ix := searchtest.Build(t, dim, docs, nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	for range 5 {
		q := m.query(4)
		o.check(t, q, search(t, on(t, ix, 1), q, Options{K: 50, Mode: Exhaustive}).Hits, 50, nil)
		require.Zero(t, o.score(q, 1))
	}
}

func TestCancelled(t *testing.T) {
	m := newMaker(38, 64, 40)
	ix := searchtest.Build(t, 64, m.Docs("d", 400, 20), nil)
	e := on(t, ix, 2)
	q := m.query(32)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, o := range []Options{{}, {Mode: Exhaustive}, {Mode: Candidates, Candidates: []string{"d0"}}, {Filter: Only()}} {
		_, err := e.Search(ctx, q, o)
		require.ErrorIs(t, err, context.Canceled)
		_, err = e.SearchBatch(ctx, []Query{q, q}, o)
		require.ErrorIs(t, err, context.Canceled)
		_, err = e.Explain(ctx, q, "d0", o)
		require.ErrorIs(t, err, context.Canceled)
	}
	late, stop := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer stop()
	_, err := e.Search(late, q, Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// Cancelled from another goroutine while a batch runs that would take long.
	queries := make([]Query, 1<<14)
	for i := range queries {
		queries[i] = q
	}
	for _, threads := range []int{1, 4} {
		ctx, cancel := context.WithCancelCause(context.Background())
		go func() {
			time.Sleep(5 * time.Millisecond)
			cancel(errors.New("enough"))
		}()
		_, err := on(t, ix, threads).SearchBatch(ctx, queries, Options{Mode: Exhaustive})
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Len(t, search(t, e, q, Options{}).Hits, 10)
}

// Each place that looks at the context is where a search ends once.
func TestCancelledAnywhere(t *testing.T) {
	m := newMaker(39, 16, 40)
	ix := searchtest.Build(t, 16, m.Docs("d", 500, 5), nil)
	e := on(t, ix, 1)
	q := m.query(6)
	for _, o := range []Options{{Mode: Exhaustive}, {Probes: 4, Approx: 60, Exact: 20}, {Probes: 40, Approx: 60, Exact: 20}, wide} {
		want := search(t, e, q, o).Hits
		for n := 0; ; n++ {
			require.Less(t, n, 10_000)
			res, err := e.Search(countdown.New(n), q, o)
			if err == nil {
				require.Equal(t, want, res.Hits)
				require.Greater(t, n, 3)
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			require.Nil(t, res)
			require.Equal(t, want, search(t, e, q, o).Hits, "after a search that ended early")
		}
	}
}
