package search

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/vectors"
)

// shown is a hit as users see it: place, score and passages.
func shown(hits []Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = fmt.Sprintf("%d/%s %08x %s %v", h.Shard, h.ID, math.Float32bits(h.Score), h.Payload, ids(h.Passages))
	}
	return out
}

// Pages of any size are a ranking, in every mode, of one index, of several and on a device, also
// where many documents score the same: each hit once, and in its place.
func TestPages(t *testing.T) {
	m := newMaker(17, 16, 20)
	docs := long(t, m, effort.Cases(150, 400), 3)
	queries := make([]Query, effort.Cases(1, 6)) // the same for every door and mode
	for i := range queries {
		queries[i] = m.query(5)
	}
	for i := range 60 { // the same text, many times
		docs = append(docs, vectors.Document{ID: fmt.Sprint("same", i), Tokens: docs[0].Tokens, Payload: []byte(`{"n":1}`)})
	}
	ix := searchtest.Build(t, 16, docs, nil)
	parts, err := index.Split(t.Context(), searchtest.Snapshot(t, ix), filepath.Join(t.TempDir(), "parts"), 3, index.ByHash, nil)
	require.NoError(t, err)
	set := openSet(t, []string{parts[0].Path, parts[1].Path, parts[2].Path})
	searchers := map[string]Searcher{
		"one": on(t, ix, 2), "several": multi(t, set, 2), "device": onDeviceOf(t, ix, &kerneltest.Device{}),
	}
	var named []string
	for i := range 40 {
		named = append(named, fmt.Sprint("d", i))
	}
	modes := map[string]Options{
		"pruned": {}, "exhaustive": {Mode: Exhaustive, Payload: true}, "budgets": {Probes: AllProbes, Approx: 1 << 20, Exact: 1 << 20},
		"candidates": {Mode: Candidates, Candidates: named}, "best": {Group: GroupBest, Passages: 3}, "sum": {Group: GroupSum, Passages: 2},
		"maxsim": {Group: GroupMaxSim, Mode: Exhaustive, Payload: true}, "matches": {Matches: true},
		"condition": {Filter: Where(bind(t, "n = 1"))}, "feedback": {Feedback: &Feedback{Docs: 3}},
	}
	for door, s := range searchers {
		for name, o := range modes {
			t.Run(door+" "+name, func(t *testing.T) {
				same, all, both, wanted := 0, 0, 0, 0
				every := o.Mode != Pruned || o.Exact > 0
				for _, q := range queries {
					for _, k := range []int{1, 6, 10, 33} {
						var paged []Hit
						for page := range 5 {
							r, err := s.Search(t.Context(), q, with(o, func(o *Options) { o.K, o.Offset = k, page*k }))
							require.NoError(t, err)
							require.Equal(t, []int{k, page * k}, []int{r.K, r.Offset})
							paged = append(paged, r.Hits...)
						}
						whole, err := s.Search(t.Context(), q, with(o, func(o *Options) { o.K = 5 * k }))
						require.NoError(t, err)
						want, got := shown(whole.Hits), shown(paged)
						if every {
							require.Equal(t, want, got)
						}
						seen := ids(paged)
						slices.Sort(seen)
						require.Len(t, slices.Compact(seen), len(got), "none comes twice")
						both, wanted = both+overlap(whole.Hits, paged), wanted+len(want)
						if all++; slices.Equal(want, got) {
							same++
						}
						past, err := s.Search(t.Context(), q, with(o, func(o *Options) { o.K, o.Offset = k, 1<<40 }))
						require.NoError(t, err)
						require.Empty(t, past.Hits, "behind the end")
						require.NotNil(t, past.Hits)
						for _, h := range whole.Hits[min(4*k, len(whole.Hits)):min(4*k+1, len(whole.Hits))] {
							least := float64(h.Score)
							enough, err := s.Search(t.Context(), q, with(o, func(o *Options) { o.K, o.MinScore = 5*k, &least }))
							require.NoError(t, err)
							want := slices.DeleteFunc(slices.Clone(whole.Hits), func(h Hit) bool { return float64(h.Score) < least })
							require.Equal(t, shown(want), shown(enough.Hits))
							require.LessOrEqual(t, 4*k+1, len(want))
						}
					}
				}
				require.GreaterOrEqual(t, same, all/2, "what is found late is rare")
				require.GreaterOrEqual(t, both, wanted*95/100)
			})
		}
	}
}

// A search that prunes much finds more when it is asked for more. Its pages have no document
// twice, and about all that the search for all of them finds.
func TestPagesOfCrudeSearch(t *testing.T) {
	m := newMaker(18, 16, 40)
	ix := searchtest.Build(t, 16, m.Docs("d", 3000, 6), &index.BuildOptions{Nbits: 1})
	e := on(t, ix, 2)
	late, both, all := 0, 0, 0
	for range effort.Cases(40, 150) {
		q, k := m.query(4), 5
		o := Options{Effort: MinEffort}
		seen := map[string]bool{}
		var paged []Hit
		for page := range 8 {
			r := search(t, e, q, with(o, func(o *Options) { o.K, o.Offset = k, page*k }))
			inOrder(t, r.Hits)
			for _, h := range r.Hits {
				require.False(t, seen[h.ID], "%s comes twice", h.ID)
				seen[h.ID] = true
			}
			paged = append(paged, r.Hits...)
		}
		blocks := search(t, e, q, with(o, func(o *Options) { o.K, o.Block = 8*k, k }))
		require.Equal(t, shown(paged), shown(blocks.Hits), "all pages at once")
		whole := search(t, e, q, with(o, func(o *Options) { o.K = 8 * k }))
		both, all = both+overlap(whole.Hits, paged), all+8*k
		if !slices.Equal(ids(whole.Hits), ids(paged)) {
			late++
		}
	}
	require.Positive(t, late, "the test has no such case")
	require.GreaterOrEqual(t, both, all*97/100)
}

// The documents of ranked passages are the same, with the same passages, on every page.
func TestPagesOfRankedGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3000).Draw(t, "passages")
		of := rapid.IntRange(1, 500).Draw(t, "documents")
		rng := newMaker(rapid.Uint64().Draw(t, "seed"), 2, 1).Rand
		all := make([]Hit, n)
		for i := range all {
			all[i] = Hit{ID: fmt.Sprintf("d%d#%d", rng.IntN(of), i), Score: float32(n - i)}
		}
		find := func(k int) []string {
			hits, err := RankGroups(t.Context(), k, 3, n, func(k int) ([]Hit, error) { return all[:min(k, n)], nil },
				func(h *Hit) (DocumentKey, bool) {
					id, _ := vectors.SplitPassageID(h.ID)
					return DocumentKey{ID: id}, true
				}, func(h *Hit) (Hit, error) { return *h, nil })
			require.NoError(t, err)
			return shown(hits)
		}
		whole := find(100)
		for _, k := range []int{1, 2, 10, 57} {
			require.Equal(t, whole[:min(k, len(whole))], find(k))
		}
	})
}

// A least score lets the documents through that brute force says, when all are scored.
func TestMinScore(t *testing.T) {
	m := newMaker(19, 16, 20)
	ix := searchtest.Build(t, 16, m.Docs("d", 400, 5), nil)
	e, truth := on(t, ix, 1), newOracle(t, searchtest.Snapshot(t, ix))
	for range effort.Cases(5, 20) {
		q := m.query(4)
		ranking := truth.rank(q, nil)
		for _, n := range []int{1, 20, 150, len(ranking) - 1} {
			between := (ranking[n-1].score + ranking[n].score) / 2
			if ranking[n-1].score-ranking[n].score < 1e-3 {
				continue
			}
			r := search(t, e, q, Options{K: 1000, Mode: Exhaustive, MinScore: &between})
			require.Len(t, r.Hits, n)
			_, more := r.Floor()
			require.False(t, more)
		}
		// A score that was printed, in decimals of its float32, lets its own document through.
		for _, h := range search(t, e, q, Options{K: 30}).Hits {
			var least float64
			_, err := fmt.Sscan(fmt.Sprint(h.Score), &least)
			require.NoError(t, err)
			require.Contains(t, ids(search(t, e, q, Options{K: 30, MinScore: &least}).Hits), h.ID)
		}
	}
	q := m.query(3)
	q.Weights = []float32{-1, -1, 1}
	signs := map[bool]int{}
	for _, x := range truth.rank(q, nil) {
		signs[x.score < 0]++
	}
	require.Positive(t, signs[true])
	require.Len(t, search(t, e, q, Options{K: 1000, Mode: Exhaustive, MinScore: new(0.)}).Hits, signs[false])
	require.Len(t, search(t, e, q, Options{MinScore: new(-math.MaxFloat64)}).Hits, 10)
	require.Empty(t, search(t, e, q, Options{MinScore: new(math.MaxFloat64)}).Hits)
}

func TestBadPages(t *testing.T) {
	m := newMaker(20, 8, 3)
	e := on(t, searchtest.Build(t, 8, m.Docs("d", 20, 3), nil), 1)
	for want, o := range map[string]Options{
		"offset = -1; at least 0 is needed":       {Offset: -1},
		"are too many together":                   {Offset: math.MaxInt, K: 1},
		"k = -1; at least 1 is needed":            {K: -1},
		"min_score NaN; a finite number":          {MinScore: new(math.NaN())},
		"min_score -Inf; a finite number":         {MinScore: new(math.Inf(-1))},
		"min_score +Inf; a finite number is":      {MinScore: new(math.Inf(1)), Feedback: &Feedback{Docs: 1}},
		"offset = -5; at least 0 is needed":       {Offset: -5, Group: GroupBest},
		"a block of -1 documents":                 {Block: -1},
		"offset 9223372036854775800 and k 10 are": {Offset: math.MaxInt - 7},
	} {
		_, err := e.Search(t.Context(), m.query(2), o)
		require.ErrorIs(t, err, ErrOption)
		require.ErrorContains(t, err, want)
	}
	for _, o := range []Options{{Offset: 1}, {MinScore: new(1.)}} {
		_, err := e.Explain(t.Context(), m.query(2), "d1", o)
		require.ErrorIs(t, err, ErrOption)
	}
}

// Fused pages of one size are one ranking, whose scores do not rise. The first ones are those of a
// fusion of three times as many of each side.
func TestFusedPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := func(label string, most int) (ranked []RankedHit) {
			n := min(rapid.SampledFrom([]int{0, 3, 59, 60, 61, 250, 700, 3100}).Draw(t, label), most)
			step := rapid.SampledFrom([]int{1, 2, 3, 7}).Draw(t, "step")
			for i := range n {
				d := uint32(i * step % most)
				ranked = append(ranked, RankedHit{Hit{ID: fmt.Sprint("d", d), Ordinal: d}, 50 - float64(i/3)*.01})
			}
			return ranked
		}
		most := rapid.SampledFrom([]int{20, 300, 301, 1000, 4001}).Draw(t, "documents")
		a, b := side("a", most), side("b", most)
		method := rapid.SampledFrom([]fuse.Method{fuse.RelativeScore, fuse.ReciprocalRank}).Draw(t, "method")
		alpha := rapid.SampledFrom([]float64{0, .3, .75, 1}).Draw(t, "alpha")
		// Each side gives what is asked of it, as searches do.
		fused := func(p Page) []RankedHit {
			sides := p.RankingPage(most)
			require.GreaterOrEqual(t, sides.K, min(p.End(), most))
			got, err := FuseRanked(method, alpha, p, sides, firstHits(a, sides.K), firstHits(b, sides.K))
			require.NoError(t, err)
			return got
		}
		k := rapid.SampledFrom([]int{1, 10, 97, 150}).Draw(t, "k")
		paged, seen := []RankedHit{}, map[string]bool{}
		for page := 0; ; page++ {
			hits := fused(Page{K: k, Offset: page * k})
			paged = append(paged, hits...)
			if len(hits) < k {
				break
			}
		}
		require.True(t, slices.IsSortedFunc(paged, func(x, y RankedHit) int { return cmp.Compare(y.Score, x.Score) }))
		for _, h := range paged {
			require.False(t, seen[h.Hit.ID], "%s comes twice", h.Hit.ID)
			seen[h.Hit.ID] = true
		}
		if alpha > 0 && alpha < 1 {
			for _, h := range slices.Concat(a, b) {
				require.True(t, seen[h.Hit.ID], "%s is lost", h.Hit.ID)
			}
		}
		sides := Page{K: min(3*k, most), Block: min(3*k, most)}
		plain, err := FuseRanked(method, alpha, Page{K: 3 * k}, sides, firstHits(a, sides.K), firstHits(b, sides.K))
		require.NoError(t, err)
		require.Equal(t, paged[:min(3*k, len(paged))], plain)
		for page := range 7 {
			p := Page{K: k, Offset: page * k}
			want := paged[min(p.Offset, len(paged)):min(p.End(), len(paged))]
			require.Equal(t, want, append([]RankedHit{}, fused(p)...))
			if len(want) > 0 {
				p.MinScore = &want[len(want)/2].Score
				want = slices.DeleteFunc(slices.Clone(want), func(h RankedHit) bool { return h.Score < *p.MinScore })
				require.Equal(t, want, fused(p))
			}
		}
	})
	_, err := FuseRanked(fuse.RelativeScore, 1, Page{}, Page{K: 1}, nil, nil)
	require.ErrorIs(t, err, ErrOption)
}
