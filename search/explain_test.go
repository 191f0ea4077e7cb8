package search

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors/pool"
)

func explain(t *testing.T, e *Engine, q Query, id string, o Options) *Explanation {
	t.Helper()
	x, err := e.Explain(context.Background(), q, id, o)
	require.NoError(t, err)
	require.Equal(t, id, x.ID)
	text, err := json.Marshal(x)
	require.NoError(t, err)
	var back Explanation
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, *x, back)
	return x
}

func TestStats(t *testing.T) {
	m := newMaker(40, 24, 50)
	ix := searchtest.Build(t, 24, m.Docs("d", 900, 6), nil)
	snap := searchtest.Snapshot(t, ix)
	_, live := snap.LiveSet()
	var sum Stats
	plans := map[string]int{}
	n := 0
	for threads := 1; threads <= 3; threads++ {
		e := on(t, ix, threads)
		for _, o := range []Options{
			{}, {K: 100}, {Mode: Exhaustive}, {Probes: 2}, {Probes: 30, Approx: 200, Exact: 50}, wide,
			{Filter: Only("d0", "d1", "d2")}, {Filter: Only()}, {Probes: 1, K: 800},
			{Mode: Candidates, Candidates: []string{"d0", "d9", "gone"}, AllowMissing: true},
		} {
			q := m.query(7)
			s := search(t, e, q, o).Stats
			require.Equal(t, 1, s.Queries)
			require.Equal(t, 7, s.QueryTokens)
			require.LessOrEqual(t, s.Allowed, int64(live))
			require.GreaterOrEqual(t, s.Allowed, s.Candidates)
			require.GreaterOrEqual(t, s.Candidates, s.ApproxDocs)
			require.GreaterOrEqual(t, s.Candidates, s.ExactDocs)
			require.GreaterOrEqual(t, s.ExactDocs, s.RefinedDocs)
			require.GreaterOrEqual(t, s.ApproxTokens, s.ApproxDocs)
			require.GreaterOrEqual(t, s.ExactTokens, s.ExactDocs)
			if s.Plans["exact"] == 0 && s.Allowed > 0 {
				require.GreaterOrEqual(t, s.ApproxDocs, s.ExactDocs)
			}
			if s.Plans["probe"] == 1 {
				require.Positive(t, s.Probed)
				require.GreaterOrEqual(t, s.Postings, s.Probed)
			} else {
				require.Zero(t, s.Probed+s.Postings+s.Widened)
				require.Equal(t, s.Allowed, s.Candidates)
			}
			for _, d := range []int64{int64(s.Times.Centroids), int64(s.Times.Probe), int64(s.Times.Approx), int64(s.Times.Exact), int64(s.Times.Refine)} {
				require.GreaterOrEqual(t, d, int64(0))
			}
			require.LessOrEqual(t, s.Times.Centroids+s.Times.Probe+s.Times.Approx+s.Times.Exact+s.Times.Refine, s.Times.Total)
			for p, c := range s.Plans {
				plans[p] += c
			}
			sum.Add(s)
			n++
		}
	}
	require.Equal(t, n, sum.Queries)
	require.Equal(t, 7*n, sum.QueryTokens)
	require.Equal(t, plans, sum.Plans)
	require.Equal(t, n-3, sum.Plans["probe"]+sum.Plans["scan"]+sum.Plans["exact"], "all but those with an empty filter have a plan")
	require.EqualValues(t, 3, sum.FilterMissing)
}

// Each figure of two searches is added, or the larger one taken; none is forgotten.
func TestStatsAdd(t *testing.T) {
	s := Stats{Queries: 1, QueryTokens: 2, Plans: map[string]int{"scan": 1}, Allowed: 3, FilterMissing: 4, Probed: 5, Postings: 6, Candidates: 7,
		Widened: 8, ApproxDocs: 9, ApproxTokens: 10, ExactDocs: 11, ExactTokens: 12, RefinedDocs: 13, BoundShare: .25, WorstBound: 21,
		Times: Times{Wait: 20, Centroids: 14, Probe: 15, Approx: 16, Exact: 17, Refine: 18, Total: 19}}
	var fields map[string]any
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &fields))
	twice := s
	twice.Plans = nil
	twice.Add(s)
	require.Equal(t, 1, twice.Plans["scan"])
	twice.Plans = map[string]int{"scan": 1}
	twice.Add(s)
	var doubled map[string]any
	text, err = json.Marshal(twice)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &doubled))
	var compare func(path string, a, b map[string]any)
	compare = func(path string, a, b map[string]any) {
		for name, v := range a {
			if inner, ok := v.(map[string]any); ok {
				compare(path+name+".", inner, b[name].(map[string]any))
				continue
			}
			require.NotZero(t, v, path+name)
			want := 3 * v.(float64)
			switch name {
			case "scan":
				want = 2
			case "bound_share": // the largest
				want = v.(float64)
			}
			require.Equal(t, want, b[name], path+name)
		}
	}
	compare("", fields, doubled)
}

func TestExplainAgreesWithSearch(t *testing.T) {
	const dim = 24
	m := newMaker(41, dim, 40)
	docs := m.Docs("d", 500, 6)
	ix := searchtest.Build(t, dim, docs, nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 2)
	for i, opt := range []Options{{}, {K: 40, Mode: Exhaustive}, {Probes: 3, Exact: 40}, {Probes: 20, Approx: 150, Exact: 40}} {
		q := m.query(8)
		if i%2 == 1 {
			q.Mask = []bool{true, false, true, true, false, true, true, true}
			q.Weights = []float32{1, 5, 0.5, -0.25, 3, 0, 1, 1}
		}
		res := search(t, e, q, opt)
		place := map[string]int{}
		for r, h := range res.Hits {
			place[h.ID] = r + 1
		}
		count := map[Stage]int{}
		for d := 0; d < len(docs); d += 3 {
			x := explain(t, e, q, docs[d].ID, opt)
			require.Equal(t, place[x.ID], x.Rank)
			require.Equal(t, x.Rank > 0, x.Stage == StageReturned)
			require.Equal(t, len(docs[d].Tokens)/dim, x.Tokens)
			require.EqualValues(t, d, x.Ordinal)
			require.Equal(t, res.Stats.Plans, map[string]int{x.Plan: 1})
			count[x.Stage]++
			if x.Tokens == 0 {
				require.Equal(t, StageEmpty, x.Stage)
				require.Zero(t, x.Score)
				require.Empty(t, x.Matches)
				require.NotNil(t, x.Matches)
				continue
			}
			require.InDelta(t, o.score(q, x.Ordinal), x.Score, 1e-9)
			var sum float64
			tokens := map[int]bool{}
			for _, match := range x.Matches {
				sum += match.Weight * match.Score
				tokens[match.QueryToken] = true
				require.Less(t, match.DocToken, x.Tokens)
				if q.Weights != nil {
					require.EqualValues(t, q.Weights[match.QueryToken], match.Weight)
				}
				row := slices.Clone(q.Vectors[match.QueryToken*dim : (match.QueryToken+1)*dim])
				codec.Normalize(row, dim)
				largest, arg := math.Inf(-1), -1
				for token, v := range o.decoded[x.Ordinal] {
					var p float64
					for j := range v {
						p += float64(row[j]) * v[j]
					}
					if p > largest {
						largest, arg = p, token
					}
				}
				require.Equal(t, arg, match.DocToken)
				require.InDelta(t, largest, match.Score, 1e-12)
			}
			require.InDelta(t, x.Score, sum, 1e-9)
			for s := range 8 {
				require.Equal(t, q.Mask == nil || q.Mask[s], tokens[s], "query token %d", s)
			}
			switch x.Stage {
			case StageReturned:
				require.InDelta(t, res.Hits[x.Rank-1].Score, *x.StageScore, 0)
				require.InDelta(t, res.Hits[len(res.Hits)-1].Score, *x.StageLimit, 0)
			case StageOutranked, StagePruned, StageCut:
				require.LessOrEqual(t, *x.StageScore, *x.StageLimit)
			default:
				require.Nil(t, x.StageScore)
				require.Nil(t, x.StageLimit)
			}
		}
		t.Log(i, count)
	}
	_, err := e.Explain(context.Background(), m.query(1), "nobody", Options{})
	require.ErrorIs(t, err, ErrUnknownID)
	require.ErrorContains(t, err, `"nobody"`)
	_, _, err = ix.Delete(context.Background(), []string{"d0"})
	require.NoError(t, err)
	_, err = e.Explain(context.Background(), m.query(1), "d0", Options{})
	require.ErrorIs(t, err, ErrUnknownID)
}

func TestExplainStages(t *testing.T) {
	const dim = 32
	m := newMaker(42, dim, 50)
	docs := m.Docs("d", 800, 5)
	ix := searchtest.Build(t, dim, docs, nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 1)
	q := m.query(6)
	order := o.rank(q, nil)
	id := func(i int) string { return o.ids[order[i].ordinal] }
	last := len(order) - 1

	x := explain(t, e, q, "d5", Options{})
	require.Equal(t, StageEmpty, x.Stage)
	x = explain(t, e, q, id(0), Options{Filter: Only(id(1))})
	require.Equal(t, StageFiltered, x.Stage)
	require.Equal(t, "exact", x.Plan)
	x = explain(t, e, q, id(0), Options{Filter: Only()})
	require.Equal(t, StageFiltered, x.Stage)
	require.Empty(t, x.Plan, "nothing ran")
	x = explain(t, e, q, id(0), Options{Mode: Candidates, Candidates: []string{id(1)}})
	require.Equal(t, StageFiltered, x.Stage)

	x = explain(t, e, q, id(last), Options{Probes: 1, Exact: 20})
	require.Equal(t, StageProbe, x.Stage)
	require.Equal(t, "probe", x.Plan)
	x = explain(t, e, q, id(last), Options{Exact: 20})
	require.Equal(t, StagePruned, x.Stage)
	require.Equal(t, "scan", x.Plan)
	require.Less(t, *x.StageScore, *x.StageLimit)
	x = explain(t, e, q, id(last), Options{Mode: Exhaustive})
	require.Equal(t, StageOutranked, x.Stage)
	require.InDelta(t, x.Score, *x.StageScore, 1e-2)
	require.InDelta(t, order[9].score, *x.StageLimit, 1e-2)
	x = explain(t, e, q, id(3), Options{Mode: Exhaustive})
	require.Equal(t, StageReturned, x.Stage)
	require.InDelta(t, order[3].score, *x.StageScore, 1e-3)
	require.InDelta(t, order[x.Rank-1].score, x.Score, 1e-3)

	// Probing all centroids of a token but with a small approximate budget.
	stages := map[Stage]bool{}
	for i := 0; i <= last; i += 7 {
		x := explain(t, e, q, id(i), Options{Probes: 60, Approx: 40, Exact: 20})
		stages[x.Stage] = true
	}
	require.True(t, stages[StageCut], fmt.Sprint(stages))
	require.True(t, stages[StagePruned], fmt.Sprint(stages))
}

// The scores of cells are the products with the tokens that stand for them, and the best of
// all is what the match says.
func TestExplainTellsOfCells(t *testing.T) {
	const dim, rows, columns, first, behind = 16, 5, 4, 2, 3
	m := newMaker(3, dim, 20)
	docs := m.Docs("p", 30, first+rows*columns+behind)
	for i := range docs {
		docs[i].Tokens = m.Tokens(first + rows*columns + behind)
		docs[i].Payload = fmt.Appendf(nil, `{"image": "%d.png", "grid": [%d, %d, %d]}`, i, rows, columns, first)
	}
	docs[1].Payload = []byte(`{"image": "https://example.org/1.png"}`)
	docs[2].Payload = []byte(`{"title": "no page"}`)
	for _, o := range []index.BuildOptions{{}, {Pool: 4, PoolBy: pool.Tiles}, {Pool: 3, PoolBy: pool.Neighbours}, {Pool: 2}} {
		some := docs
		if o.PoolBy.NeedsPage() {
			some = docs[3:]
		}
		ix := searchtest.Build(t, dim, some, &o)
		e := on(t, ix, 1)
		q := m.query(6)
		q.Mask = []bool{true, false, true, true, true, true}
		if !o.PoolBy.NeedsPage() {
			x := explain(t, e, q, "p1", Options{})
			require.Equal(t, "https://example.org/1.png", x.Image)
			require.Nil(t, x.Grid)
			require.Empty(t, x.NoGrid)
			require.Empty(t, explain(t, e, q, "p2", Options{}).Image)
		}
		x := explain(t, e, q, "p7", Options{})
		require.Equal(t, "7.png", x.Image)
		if o.Pool > 1 && o.PoolBy != pool.Tiles {
			require.Nil(t, x.Grid)
			require.NotEmpty(t, x.NoGrid)
			continue
		}
		side := max(1, pool.Side(max(o.Pool, 1)))
		stored := (columns + side - 1) / side
		require.Equal(t, []int{rows, columns, first + behind}, []int{x.Grid.Rows, x.Grid.Columns, x.Grid.Special})
		require.Len(t, x.Grid.Scores, 5, "what is masked takes no part")
		snap := searchtest.Snapshot(t, ix)
		chunk, doc, _ := snap.Locate(x.Ordinal)
		ch, err := snap.Chunk(chunk, storage.All)
		require.NoError(t, err)
		vectors, _, err := q.Tokens(snap)
		require.NoError(t, err)
		product := func(query, token int) (sum float64) {
			for j, v := range kernels.OracleDecode(snap.Codec(), ch, int(ch.Offsets[doc])+token) {
				sum += v * float64(vectors[query*dim+j])
			}
			return sum
		}
		for i, s := range x.Grid.Scores {
			match := x.Matches[i]
			require.Equal(t, match.QueryToken, s.QueryToken)
			require.Len(t, s.Cells, rows*columns)
			require.Len(t, s.Special, first+behind)
			best := float32(-2)
			for cell, score := range s.Cells {
				token := first + cell/columns/side*stored + cell%columns/side
				require.InDelta(t, product(i, token), score, 1e-4, "cell %d of %v", cell, o.PoolBy)
				best = max(best, score)
			}
			for j, score := range s.Special {
				token := j
				if j >= first {
					token = x.Tokens - (first + behind) + j
				}
				require.InDelta(t, product(i, token), score, 1e-4)
				best = max(best, score)
			}
			require.InDelta(t, match.Score, best, 1e-4)
		}
	}
}
