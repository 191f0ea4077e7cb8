package quality

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// What Recall says of each query, and of each missing document, is what
// searching and explaining one by one say.
func TestRecallIsWhatSearchesSay(t *testing.T) {
	e, _, qs, _ := recallIndex(t)
	for _, c := range []struct {
		o    search.Options
		lost search.Stage // the stage that loses most
	}{
		{search.Options{K: 20, Probes: 1}, search.StageProbe},
		{search.Options{K: 20, Probes: 6, Approx: 30, Exact: 30}, search.StageCut},
		{search.Options{K: 20, Probes: 128, Exact: 20}, search.StagePruned},
	} {
		r, err := MeasureRecall(t.Context(), e, qs, c.o, nil, nil)
		require.NoError(t, err)
		require.Equal(t, len(qs), r.Stats.Queries)
		sum, missing := 0.0, 0
		for i, q := range r.Queries {
			want := find(t, e, qs[i], search.Options{K: 20, Mode: search.Exhaustive}).Hits
			got := ids(find(t, e, qs[i], c.o).Hits)
			var absent []string
			for rank, h := range want {
				if slices.Contains(got, h.ID) {
					continue
				}
				absent = append(absent, h.ID)
				m := q.Missing[len(absent)-1]
				require.Equal(t, Missing{ID: h.ID, Ordinal: h.Ordinal, Rank: rank + 1, Score: h.Score, Stage: m.Stage}, m)
				x, err := e.Explain(t.Context(), qs[i], h.ID, c.o)
				require.NoError(t, err)
				require.Equal(t, x.Stage, m.Stage)
				require.Contains(t, LossStages, m.Stage)
			}
			require.Len(t, q.Missing, len(absent))
			require.Equal(t, len(want), q.Want)
			sum += 1 - float64(len(absent))/float64(len(want))
			missing += len(absent)
		}
		require.InDelta(t, sum/float64(len(qs)), r.Mean(), 1e-12)
		require.Less(t, r.Mean(), 1.0, "nothing is lost, so nothing is tested")
		most, total := search.Stage(""), 0
		for s, n := range r.Lost() {
			total += n
			if n > r.Lost()[most] {
				most = s
			}
		}
		require.Equal(t, missing, total)
		require.Equal(t, c.lost, most, "%v", r.Lost())
	}
}

func TestRecallOfEverything(t *testing.T) {
	e, _, qs, docs := recallIndex(t)
	for _, o := range []search.Options{{Mode: search.Exhaustive}, {K: 5, Exact: len(docs)}, {K: 1000}} {
		r, err := MeasureRecall(t.Context(), e, qs, o, nil, nil)
		require.NoError(t, err)
		require.Equal(t, 1.0, r.Mean())
		require.Empty(t, r.Lost())
		require.Positive(t, r.ExhaustiveHits())
	}
	r, err := MeasureRecall(t.Context(), e, nil, search.Options{}, nil, nil)
	require.NoError(t, err)
	require.Equal(t, 1.0, r.Mean())
}

func TestReferenceServesSmallerK(t *testing.T) {
	e, _, qs, _ := recallIndex(t)
	steps := 0
	reference, err := Reference(t.Context(), e, qs, 50, func(p index.Progress) {
		steps++
		require.LessOrEqual(t, p.Done, p.Total)
	})
	require.NoError(t, err)
	require.Equal(t, 2, steps)
	o := search.Options{K: 7, Probes: 1, Exact: 8}
	want, err := MeasureRecall(t.Context(), e, qs, o, nil, nil)
	require.NoError(t, err)
	got, err := MeasureRecall(t.Context(), e, qs, o, reference, nil)
	require.NoError(t, err)
	require.Equal(t, want.Queries, got.Queries)
}

func TestRecallErrors(t *testing.T) {
	e, snap, qs, docs := recallIndex(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := MeasureRecall(ctx, e, qs, search.Options{}, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = MeasureCompression(ctx, e, snap, qs, searchtest.Source(t, 32, docs), 5, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	bad := append(slices.Clone(qs), search.Query{Vectors: make([]float32, 31)})
	_, err = MeasureRecall(t.Context(), e, bad, search.Options{}, nil, nil)
	var q *search.QueryError
	require.ErrorAs(t, err, &q)
	require.Equal(t, len(qs), q.Index, "counted from the first batch")
	_, err = MeasureCompression(t.Context(), e, snap, bad, searchtest.Source(t, 32, docs), 5, make([][]search.Hit, len(bad)), nil)
	require.ErrorAs(t, err, &q)
	require.ErrorIs(t, err, search.ErrQuery)

	_, err = MeasureCompression(t.Context(), e, snap, qs, searchtest.Source(t, 16, searchtest.New(1, 16, 2).Docs("d", 3, 4)), 5, nil, nil)
	require.ErrorIs(t, err, ErrOriginals)
	_, err = MeasureCompression(t.Context(), e, snap, qs, searchtest.Source(t, 32, docs[:len(docs)-3]), 5, nil, nil)
	require.ErrorIs(t, err, ErrOriginals)
	require.ErrorContains(t, err, "they lack 3 documents of ")
	require.ErrorContains(t, err, `the first is "d397"`)
}

// Exhaustive results of other queries are refused, as a negative depth is.
func TestReferenceOfOtherQueries(t *testing.T) {
	e, snap, qs, docs := recallIndex(t)
	reference, err := Reference(t.Context(), e, qs, 5, nil)
	require.NoError(t, err)
	sweep := SweepOptions{K: 5, Settings: []Setting{{}}}
	measure := func(k int, reference [][]search.Hit) []error {
		sweep.K = k
		_, recall := MeasureRecall(t.Context(), e, qs, search.Options{K: k}, reference, nil)
		_, compression := MeasureCompression(t.Context(), e, snap, qs, searchtest.Source(t, 32, docs), k, reference, nil)
		_, swept := Sweep(t.Context(), e, qs, sweep, reference)
		return []error{recall, compression, swept}
	}
	for _, other := range [][][]search.Hit{{}, reference[:len(qs)-1], append(slices.Clone(reference), nil)} {
		for _, err := range measure(5, other) {
			require.ErrorIs(t, err, ErrReference)
			require.ErrorContains(t, err, fmt.Sprintf("%d lists, and %d queries", len(other), len(qs)))
		}
	}
	for _, err := range measure(-1, reference) {
		require.ErrorIs(t, err, search.ErrOption)
	}
	for _, err := range measure(5, reference) {
		require.NoError(t, err)
	}
}

// floatMaxSim is the definition, in float64.
func floatMaxSim(q search.Query, tokens []float32, dim int) float64 {
	unit := func(v []float32) []float64 {
		out, sum := make([]float64, dim), 0.0
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		for j, x := range v {
			out[j] = float64(x) / math.Sqrt(sum)
		}
		return out
	}
	score := 0.0
	for s := range len(q.Vectors) / dim {
		if q.Mask != nil && !q.Mask[s] {
			continue
		}
		v, most := unit(q.Vectors[s*dim:(s+1)*dim]), math.Inf(-1)
		for t := range len(tokens) / dim {
			dot := 0.0
			for j, x := range unit(tokens[t*dim : (t+1)*dim]) {
				dot += v[j] * x
			}
			most = max(most, dot)
		}
		if q.Weights != nil {
			most *= float64(q.Weights[s])
		}
		score += most
	}
	return score
}

// Exact scores over the originals against the definition, with documents that
// are empty, longer than a tile, and cut by blocks, and with several groups.
func TestCompressionAgainstDefinition(t *testing.T) {
	const dim, k = 32, 25
	m := searchtest.New(5, dim, 30)
	docs := m.Docs("d", 90, 8)
	docs[7].Tokens = m.Tokens(71)
	docs[8].Tokens = m.Tokens(64)
	ix := searchtest.Build(t, dim, docs, &index.BuildOptions{Centroids: 64, Threads: 1})
	_, _, err := ix.Delete(t.Context(), []string{"d9", "d20"})
	require.NoError(t, err)
	qs := []search.Query{query(m, 1), query(m, 5), query(m, 9), query(m, 3), query(m, 40)}
	qs[1].Mask = []bool{true, false, true, true, false}
	qs[2].Weights = []float32{1, 2, 0.5, 0, 1, 1, 1, -0.25, 3}
	qs[3].Vectors = slices.Clone(qs[3].Vectors)
	for i := range qs[3].Vectors {
		qs[3].Vectors[i] *= 7 // is scaled to unit length
	}

	var all []*Compression
	for _, threads := range []int{1, 3} {
		for _, sizes := range []exactSizes{defaultSizes, {blockFloats: 64 * dim, scorePairs: 60}, {blockFloats: 1, scorePairs: 1}} {
			x, err := newExactSearch(searchtest.Snapshot(t, ix), threads, qs, k, sizes)
			require.NoError(t, err)
			c := &Compression{K: k, Queries: make([]QueryCompression, len(qs))}
			exact, err := x.run(t.Context(), searchtest.Source(t, dim, docs), c, nil)
			require.NoError(t, err)
			for i := range qs {
				c.Queries[i].Exact = exact[i]
			}
			all = append(all, c)
		}
	}
	for _, c := range all {
		require.Equal(t, all[0].Queries, c.Queries, "depends on threads or blocks")
		require.Equal(t, 2, c.Skipped)
	}
	for i, q := range qs {
		scores := map[string]float64{}
		var list []float64
		for _, d := range docs {
			if len(d.Tokens) > 0 && d.ID != "d9" && d.ID != "d20" {
				scores[d.ID] = floatMaxSim(q, d.Tokens, dim)
				list = append(list, scores[d.ID])
			}
		}
		require.Equal(t, len(list), all[0].Docs)
		slices.Sort(list)
		slices.Reverse(list)
		require.Len(t, all[0].Queries[i].Exact, k)
		for r, h := range all[0].Queries[i].Exact {
			require.InDelta(t, scores[h.ID], h.Score, 1e-4, "query %d, %s", i, h.ID)
			require.InDelta(t, list[r], h.Score, 1e-4, "query %d, rank %d", i, r)
		}
	}

	// And what is made of them.
	e, snap := engine(t, ix, search.EngineOptions{Threads: 2}), searchtest.Snapshot(t, ix)
	c, err := MeasureCompression(t.Context(), e, snap, qs, searchtest.Source(t, dim, docs), k, nil, nil)
	require.NoError(t, err)
	var sum, square, overlap float64
	n := 0
	for i, q := range c.Queries {
		require.Equal(t, all[0].Queries[i].Exact, q.Exact)
		require.Equal(t, find(t, e, qs[i], search.Options{K: k, Mode: search.Exhaustive}).Hits, q.Stored)
		stored := map[string]float32{}
		for _, h := range find(t, e, qs[i], search.Options{K: 1000, Mode: search.Exhaustive}).Hits {
			stored[h.ID] = h.Score
		}
		for r, h := range q.Exact {
			d := float64(stored[h.ID]) - float64(h.Score)
			sum += d
			square += d * d
			n++
			if r < 10 && slices.Contains(ids(q.Stored[:10]), h.ID) {
				overlap += 0.1 / float64(len(qs))
			}
		}
	}
	require.Equal(t, n, c.Scores)
	require.InDelta(t, sum/float64(n), c.Bias, 1e-6)
	require.InDelta(t, math.Sqrt(square/float64(n)), c.RMSE, 1e-6)
	require.Positive(t, c.RMSE)
	require.InDelta(t, overlap, c.Overlap(10), 1e-9)
	require.Equal(t, 0, c.Reshaped)

	docs[30].Tokens = docs[30].Tokens[:dim]
	c, err = MeasureCompression(t.Context(), e, snap, qs[:1], searchtest.Source(t, dim, docs), k, nil, nil)
	require.NoError(t, err)
	require.Equal(t, 1, c.Reshaped)
}

// Under a filter the exhaustive result is filtered too.
func TestRecallUnderFilter(t *testing.T) {
	e, _, qs, docs := recallIndex(t)
	var some []string
	for i := 0; i < len(docs); i += 3 {
		some = append(some, docs[i].ID)
	}
	r, err := MeasureRecall(t.Context(), e, qs, search.Options{K: 10, Probes: 2, Exact: 10, Filter: search.Only(some...)}, nil, nil)
	require.NoError(t, err)
	require.Less(t, r.Mean(), 1.0)
	require.Greater(t, r.Mean(), 0.5)
	for s := range r.Lost() {
		require.NotEqual(t, search.StageFiltered, s)
	}
}

// Exact scores of real vectors against the definition, and against a file made
// from the vectors before they were rounded to float16.
func TestCompressionOfRealVectors(t *testing.T) {
	const sample, k = "../../docs/examples/quickstart/scifact-sample/vectors/", 46
	files := vectors.Files{Vectors: sample + "docs.npy", Lengths: sample + "doclens.npy", IDs: sample + "doc_ids.txt"}
	docs := searchtest.Load(t, files)
	ix := searchtest.Build(t, 128, docs, &index.BuildOptions{Nbits: 4, Centroids: 256, Iterations: 1, SampleDocs: 24})
	src, err := vectors.Open(t.Context(), files)
	require.NoError(t, err)
	defer src.Close()
	var qs []search.Query
	number := map[string]int{}
	for i, q := range searchtest.Load(t, vectors.Files{Vectors: sample + "queries.npy", IDs: sample + "query_ids.txt"}) {
		qs = append(qs, search.Query{Vectors: q.Tokens})
		number[q.ID] = i
	}
	c, err := MeasureCompression(t.Context(), engine(t, ix, search.EngineOptions{Threads: 2}), searchtest.Snapshot(t, ix), qs, src, k, nil, nil)
	require.NoError(t, err)
	rows := 0
	for _, row := range searchtest.Table(t, sample+"exact-top100.tsv", false) {
		rank, err := strconv.Atoi(row[2])
		if err != nil {
			continue // the header
		}
		rows++
		score, err := strconv.ParseFloat(row[3], 64)
		require.NoError(t, err)
		exact := c.Queries[number[row[0]]].Exact
		require.InDelta(t, score, exact[rank-1].Score, 1e-3)
		own := exact[slices.IndexFunc(exact, func(h search.Hit) bool { return h.ID == row[1] })]
		require.InDelta(t, score, own.Score, 1e-3, "query %s, document %s", row[0], row[1])
	}
	tokens := map[string][]float32{}
	for _, d := range docs {
		tokens[d.ID] = d.Tokens
	}
	for _, h := range c.Queries[3].Exact {
		require.InDelta(t, floatMaxSim(qs[3], tokens[h.ID], 128), h.Score, 1e-5)
	}
	require.Equal(t, k*len(qs), rows)
	require.Greater(t, c.Overlap(10), 0.95)
	require.Less(t, c.RMSE, 0.1)
}
