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
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func TestK(t *testing.T) {
	ctx := context.Background()
	m := newMaker(20, 16, 20)
	docs := m.Docs("d", 100, 5)
	ix := searchtest.Build(t, 16, docs, nil)
	_, _, err := ix.Delete(ctx, []string{"d0", "d1", "d5", "d99"}) // d5 is empty
	require.NoError(t, err)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	require.Less(t, len(o.ids), 97)
	e := on(t, ix, 2)
	q := m.query(6)
	modes := []Options{
		{}, {Mode: Exhaustive}, {Probes: 1}, {Probes: 1, Approx: 1, Exact: 1}, {Exact: 1}, {Approx: 1}, {Probes: 100000},
	}
	for i, opt := range modes {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			require.Len(t, search(t, e, q, opt).Hits, 10, "the default")
			for _, k := range []int{1, 2, 50, len(o.ids) - 1, len(o.ids), len(o.ids) + 1, 100, 1000, 1 << 40, math.MaxInt} {
				opt.K = k
				res := search(t, e, q, opt)
				require.Len(t, res.Hits, min(k, len(o.ids)))
				if k >= len(o.ids) { // nothing is left to prune
					o.check(t, q, res.Hits, k, nil)
				}
				for _, h := range res.Hits {
					require.Contains(t, o.ids, h.Ordinal)
				}
			}
		})
	}
}

func TestOptionErrors(t *testing.T) {
	m := newMaker(21, 8, 5)
	e := on(t, searchtest.Build(t, 8, m.Docs("d", 20, 4), nil), 1)
	for _, c := range []struct {
		o    Options
		says []string
	}{
		{Options{K: -1}, []string{"k = -1"}},
		{Options{K: math.MinInt}, []string{"-9223372036854775808"}},
		{Options{Probes: -2}, []string{"probes -2"}},
		{Options{Approx: -3}, []string{"approximate budget -3"}},
		{Options{Exact: -4}, []string{"exact budget -4"}},
		{Options{K: -5, Exact: -6}, []string{"k = -5", "exact budget -6"}},
		{Options{Mode: 7}, []string{"mode 7"}},
		{Options{Mode: Candidates}, []string{"without a list"}},
		{Options{Candidates: []string{"d0"}}, []string{"mode pruned"}},
		{Options{Candidates: []string{}, Mode: Exhaustive}, []string{"mode exhaustive"}},
	} {
		_, err := e.Search(context.Background(), m.query(2), c.o)
		require.ErrorIs(t, err, ErrOption)
		_, batch := e.SearchBatch(context.Background(), []Query{m.query(2)}, c.o)
		require.ErrorIs(t, batch, ErrOption)
		_, explain := e.Explain(context.Background(), m.query(2), "d0", c.o)
		require.ErrorIs(t, explain, ErrOption)
		for _, s := range c.says {
			require.ErrorContains(t, err, s)
		}
	}
}

func TestParseMode(t *testing.T) {
	for _, m := range []Mode{Pruned, Exhaustive, Candidates} {
		got, err := ParseMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	_, err := ParseMode("fast")
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, `"fast"`)
}

func TestPayload(t *testing.T) {
	ctx := context.Background()
	m := newMaker(22, 8, 5)
	docs := m.Docs("d", 30, 4)
	docs[2].Payload = nil
	ix := searchtest.Build(t, 8, docs, nil)
	e := on(t, ix, 1)
	q := m.query(3)
	for _, h := range search(t, e, q, Options{K: 30}).Hits {
		require.Nil(t, h.Payload)
	}
	hits := search(t, e, q, Options{K: 30, Payload: true}).Hits
	require.NoError(t, ix.Compact(ctx, nil)) // a payload is no page of the file
	for _, h := range hits {
		require.Equal(t, docs[h.Ordinal].Payload, []byte(h.Payload))
	}
}

func TestPlan(t *testing.T) {
	const docs, tokens, lists, lq = 1_000_000, 100_000_000, 131_072, 32
	for _, c := range []struct {
		name                  string
		o                     Options
		allowed               int
		plan                  Plan
		probes, approx, exact int
	}{
		{"k 10", Options{K: 10}, docs, PlanProbe, 8, 10485, 0},
		{"k 100", Options{K: 100}, docs, PlanProbe, 24, 20971, 0},
		{"k 1000", Options{K: 1000}, docs, PlanProbe, 32, 65024, 0},
		{"k 2000", Options{K: 2000}, docs, PlanProbe, 32, 129024, 0},
		{"all", Options{K: docs}, docs, PlanExact, 32, 64*docs + 1024, 0},
		{"huge k", Options{K: math.MaxInt}, docs, PlanExact, 32, math.MaxInt, 0},
		{"explicit", Options{K: 10, Probes: 3, Approx: 5000, Exact: 50}, docs, PlanProbe, 3, 5000, 50},
		{"exact below k", Options{K: 10, Exact: 5}, docs, PlanProbe, 8, 10485, 10},
		{"approx below exact", Options{K: 10, Approx: 5}, docs, PlanProbe, 8, 140, 0},
		{"filter of 140", Options{K: 10}, 140, PlanExact, 8, 10485, 0},
		{"filter of 141", Options{K: 10}, 141, PlanScan, 8, 10485, 0},
		{"filter of 141, probes", Options{K: 10, Probes: 2}, 141, PlanProbe, 2, 10485, 0},
		{"filter of 141, all probes", Options{K: 10, Probes: lists + 1}, 141, PlanScan, lists, 10485, 0},
		{"all probes", Options{K: 10, Probes: lists}, docs, PlanScan, lists, docs, 0},
		{"all probes and a budget", Options{K: 10, Probes: lists, Approx: 5000}, docs, PlanProbe, lists, 5000, 0},
		{"filter cheaper to scan than to probe", Options{K: 10}, 11_000, PlanScan, 8, 11_000, 0},
		{"filter cheaper to probe", Options{K: 10}, 13_000, PlanProbe, 8, 10485, 0},
		{"more probes cost more than a scan", Options{K: 100}, 35_000, PlanScan, 24, 35_000, 0},
		{"small budget", Options{K: 10, Approx: 1000}, 1200, PlanProbe, 8, 1000, 0},
		{"exhaustive", Options{K: 10, Mode: Exhaustive}, docs, PlanExact, 0, 0, 0},
		{"candidates", Options{K: 10, Mode: Candidates}, 5000, PlanExact, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request{mode: c.o.Mode, k: c.o.K, collectionK: c.o.K, share: 1, probes: c.o.Probes, approxBudget: c.o.Approx, exactBudget: c.o.Exact, effort: 1}
			p := r.choosePlan(c.allowed, docs, tokens, lq, lists)
			want := plan{kind: c.plan, k: c.o.K, collectionK: c.o.K, share: 1, probes: c.probes, approxBudget: c.approx, exactBudget: c.exact}
			if c.o.Mode == Pruned {
				want.deviations, want.firstApprox = neededDeviations(c.o.K, float64(c.allowed), 1), p.approxBudget
				if p.exactBudget == 0 {
					want.firstApprox = min(firstApproxFactor*leaderCount(min(c.o.K, 1<<40), 1), p.approxBudget)
				}
			}
			require.Equal(t, want, p)
			require.GreaterOrEqual(t, p.firstApprox, min(p.k, p.approxBudget, 1<<40))
			require.Equal(t, p, r.choosePlan(c.allowed, docs, tokens, lq, lists), "nothing is remembered")
		})
	}
}

func TestFilters(t *testing.T) {
	m := newMaker(23, 32, 60)
	docs := m.Docs("d", 2000, 8)
	ix := searchtest.Build(t, 32, docs, &index.BuildOptions{SampleDocs: 500})
	snap := searchtest.Snapshot(t, ix)
	e := on(t, ix, 2)
	found, wanted := map[string]int{}, map[string]int{}
	for _, c := range []struct {
		name  string
		share int // one of so many
	}{
		{"half", 2}, {"tenth", 10}, {"hundredth", 100}, {"handful", 400},
	} {
		var list []string
		for i, d := range docs {
			if i%c.share == c.share/2 {
				list = append(list, d.ID)
			}
		}
		f := Only(append(list, list[0])...) // naming one twice does not matter
		for range effort.Cases(8, 15) {
			q := m.query(12)
			want := search(t, e, q, Options{Mode: Candidates, Candidates: list})
			all := search(t, e, q, Options{Mode: Exhaustive, Filter: f})
			require.Equal(t, want.Hits, all.Hits, "exhaustive over the filtered set")
			for name, o := range map[string]Options{
				c.name: {Filter: f}, c.name + " probing": {Filter: f, Probes: 16}, c.name + " one probe": {Filter: f, Probes: 1, Exact: 1},
			} {
				res := search(t, e, q, o)
				require.Len(t, res.Hits, len(want.Hits), name)
				for _, h := range res.Hits {
					i := int(h.Ordinal)
					require.Equal(t, c.share/2, i%c.share, "document %q is not in the filter", h.ID)
				}
				require.Zero(t, res.Stats.FilterMissing)
				require.Less(t, res.Stats.Allowed, int64(len(list))+1)
				if o.Exact == 0 {
					top := map[string]bool{}
					for _, h := range want.Hits {
						top[h.ID] = true
					}
					for _, h := range res.Hits {
						if top[h.ID] {
							found[name]++
						}
					}
					wanted[name] += len(want.Hits)
				}
			}
		}
	}
	for name, n := range wanted {
		require.GreaterOrEqual(t, float64(found[name]), 0.99*float64(n), name)
		t.Logf("recall@10, %s: %.4f", name, float64(found[name])/float64(n))
	}
	_, live := snap.LiveSet()
	require.EqualValues(t, live, search(t, e, m.query(2), Options{}).Stats.Allowed)
}

// A probe that finds too few widens to all allowed documents.
func TestWiden(t *testing.T) {
	m := newMaker(24, 16, 30)
	docs := m.Docs("d", 600, 4)
	ix := searchtest.Build(t, 16, docs, nil)
	o := newOracle(t, searchtest.Snapshot(t, ix))
	e := on(t, ix, 1)
	var list []string
	allowed := map[string]bool{}
	for i := 0; i < len(docs); i += 5 {
		list = append(list, docs[i].ID)
		allowed[docs[i].ID] = true
	}
	widened := 0
	for range 20 {
		q := m.query(1)
		res := search(t, e, q, Options{K: 40, Probes: 1, Exact: 40, Filter: Only(list...)})
		require.Equal(t, map[string]int{"probe": 1}, res.Stats.Plans)
		require.Len(t, res.Hits, 40)
		for _, h := range res.Hits {
			require.True(t, allowed[h.ID])
			require.InDelta(t, o.score(q, h.Ordinal), h.Score, 1e-4)
		}
		if res.Stats.Widened == 1 {
			widened++
			require.Equal(t, res.Stats.Allowed, res.Stats.Candidates)
		}
	}
	require.Positive(t, widened)
}

func TestFilterStates(t *testing.T) {
	ctx := context.Background()
	m := newMaker(25, 16, 10)
	docs := m.Docs("d", 60, 4)
	ix := searchtest.Build(t, 16, docs, nil)
	_, _, err := ix.Delete(ctx, []string{"d8"})
	require.NoError(t, err)
	e := on(t, ix, 1)
	q := m.query(4)

	require.Len(t, search(t, e, q, Options{Filter: nil}).Hits, 10)
	for _, mode := range []Mode{Pruned, Exhaustive, Candidates} {
		base := Options{Mode: mode}
		if mode == Candidates {
			base.Candidates = []string{"d0", "d1", "d2"}
		}
		for _, f := range []*Filter{{}, {IDs: []string{}}, Only(), Only("d5"), {IDs: []string{"d8", "nobody"}, AllowMissing: true}} {
			o := base
			o.Filter = f
			res := search(t, e, q, o)
			require.NotNil(t, res.Hits)
			require.Empty(t, res.Hits, "%v, filter %v", mode, f.IDs) // d5 is empty, d8 deleted
			require.Empty(t, res.Stats.Plans)
		}
		for _, id := range []string{"nobody", "d8", "", "-1", "9999", "d\x00"} {
			o := base
			o.Filter = Only("d0", id)
			_, err := e.Search(ctx, q, o)
			require.ErrorIs(t, err, ErrUnknownID)
			require.ErrorContains(t, err, fmt.Sprintf("%q", id))
			require.ErrorContains(t, err, "filter")
			o.Filter.AllowMissing = true
			res := search(t, e, q, o)
			require.Equal(t, []string{"d0"}, ids(res.Hits))
			require.EqualValues(t, 1, res.Stats.FilterMissing)
		}
	}

	_, err = e.Search(ctx, q, Options{Mode: Candidates, Candidates: []string{"d1", "nobody"}})
	require.ErrorIs(t, err, ErrUnknownID)
	require.ErrorContains(t, err, "candidates")
	res := search(t, e, q, Options{Mode: Candidates, Candidates: []string{"d1", "nobody", "d1", "d5"}, AllowMissing: true})
	require.Equal(t, []string{"d1"}, ids(res.Hits))
	require.Empty(t, search(t, e, q, Options{Mode: Candidates, Candidates: []string{}}).Hits)
	// A filter restricts candidates too.
	res = search(t, e, q, Options{Mode: Candidates, Candidates: []string{"d1", "d2"}, Filter: Only("d2", "d3")})
	require.Equal(t, []string{"d2"}, ids(res.Hits))
}

func TestEmptiedIndex(t *testing.T) {
	ctx := context.Background()
	m := newMaker(26, 16, 10)
	docs := m.Docs("d", 30, 4)
	ix := searchtest.Build(t, 16, docs, nil)
	var all []string
	for _, d := range docs {
		all = append(all, d.ID)
	}
	_, _, err := ix.Delete(ctx, all)
	require.NoError(t, err)
	e := on(t, ix, 2)
	for range 2 {
		for _, o := range []Options{{}, {Mode: Exhaustive}, {Mode: Candidates, Candidates: []string{}}, {Probes: 1}} {
			require.Empty(t, search(t, e, m.query(3), o).Hits)
		}
		require.NoError(t, ix.Compact(ctx, nil))
	}
	_, err = ix.Add(ctx, searchtest.Source(t, 16, []vectors.Document{docs[1]}), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"d1"}, ids(search(t, e, m.query(3), Options{}).Hits))
}

func TestOneDocument(t *testing.T) {
	m := newMaker(27, 16, 3)
	for _, tokens := range []int{1, 7} {
		ix := searchtest.Build(t, 16, []vectors.Document{{ID: "only", Tokens: m.Tokens(tokens)}}, nil)
		o := newOracle(t, searchtest.Snapshot(t, ix))
		q := m.query(9)
		o.check(t, q, search(t, on(t, ix, 1), q, Options{}).Hits, 10, nil)
	}
}

func TestClosedIndex(t *testing.T) {
	m := newMaker(28, 8, 3)
	ix := searchtest.Build(t, 8, m.Docs("d", 10, 3), nil)
	e := on(t, ix, 1)
	require.NoError(t, ix.Close())
	_, err := e.Search(context.Background(), m.query(1), Options{})
	require.Error(t, err)
	_, err = e.SearchBatch(context.Background(), []Query{m.query(1)}, Options{})
	require.Error(t, err)
	_, err = e.Explain(context.Background(), m.query(1), "d0", Options{})
	require.Error(t, err)
}

func TestStoredDefaults(t *testing.T) {
	m := newMaker(11, 32, 60)
	ix := searchtest.Build(t, 32, m.Docs("d", 400, 12), &index.BuildOptions{Centroids: 128, Threads: 1})
	e := on(t, ix, 1)
	q := m.query(4)
	plain := func(o Options) Stats {
		s := search(t, e, q, o).Stats
		s.Times = Times{}
		return s
	}
	derived := map[int]Stats{}
	for _, k := range []int{5, 30, 60} {
		derived[k] = plain(Options{K: k})
	}
	small, large := Options{Probes: 1, Exact: 11}, Options{Probes: 2, Approx: 90, Exact: 70}
	require.NoError(t, ix.SetDefaults(&storage.Defaults{Classes: []storage.DefaultClass{
		{K: 10, Probes: 1, Exact: 11}, {K: 50, Probes: 2, Approx: 90, Exact: 70},
	}}))
	small.K, large.K = 5, 30
	small.Derive, large.Derive = true, true
	require.Equal(t, plain(small), plain(Options{K: 5}), "the class of 10")
	require.Equal(t, plain(large), plain(Options{K: 30}), "the class of 50")
	require.NotEqual(t, derived[5], plain(Options{K: 5}))
	require.Equal(t, derived[60], plain(Options{K: 60}), "beyond the classes")

	// Whoever names a parameter, or restricts the search, gets what is derived.
	require.Equal(t, derived[30], plain(Options{K: 30, Derive: true}))
	named := Options{K: 5, Probes: 3}
	with := plain(named)
	filter := Options{K: 5, Filter: Only("d1", "d2", "d4")}
	filtered := plain(filter)
	require.NoError(t, ix.SetDefaults(&storage.Defaults{Classes: []storage.DefaultClass{{K: 10, Scan: true, Exact: 11}}}))
	scan := plain(Options{K: 5})
	require.Equal(t, map[string]int{PlanScan.String(): 1}, scan.Plans)
	require.Equal(t, plain(Options{K: 5, Probes: AllProbes, Exact: 11}), scan)
	require.NoError(t, ix.SetDefaults(nil))
	require.Equal(t, with, plain(named))
	require.Equal(t, filtered, plain(filter))
	require.Equal(t, derived[5], plain(Options{K: 5}), "after they were removed")
}

// A stored effort multiplies what is derived, so it counts for searches with a filter, and
// for several files of which each has stored its own: the largest then.
func TestStoredEffort(t *testing.T) {
	m := newMaker(11, 32, 60)
	docs := m.Docs("d", 700, 12)
	ix := searchtest.Build(t, 32, docs, &index.BuildOptions{Centroids: 128, Threads: 1})
	set := sharded(t, ix, docs, 3, true)
	q := m.query(4)
	filter := Where(bind(t, "n >= ?", 2))
	exact := func(s Searcher, o Options) int64 {
		o.K, o.Mode = 10, Pruned
		res, err := s.Search(t.Context(), q, o)
		require.NoError(t, err)
		return res.Stats.ExactDocs
	}
	stored := func(effort float64) *storage.Defaults {
		return &storage.Defaults{Classes: []storage.DefaultClass{{K: 10, Effort: effort}}}
	}
	for _, o := range []Options{{}, {Filter: filter}} {
		require.NoError(t, ix.SetDefaults(nil))
		e := on(t, ix, 1)
		least, most := o, o
		least.Effort, most.Effort = MinEffort, MaxEffort
		little, much := exact(e, least), exact(e, most)
		require.Less(t, little, much)
		require.NoError(t, ix.SetDefaults(stored(MaxEffort)))
		require.Equal(t, much, exact(e, o))
		with := q
		with.Filter = o.Filter
		require.Equal(t, much, search(t, e, with, Options{K: 10, Mode: Pruned}).Stats.ExactDocs, "a filter of the query")

		s := multi(t, set, 1)
		all := set.Files()
		little, much = exact(s, least), exact(s, most)
		require.Less(t, little, much)
		require.NoError(t, all[0].SetDefaults(stored(MinEffort)))
		require.NoError(t, all[1].SetDefaults(stored(MaxEffort)))
		require.NoError(t, all[2].SetDefaults(nil))
		require.Equal(t, much, exact(s, o))
	}
}

func TestErrorsAreKinds(t *testing.T) {
	require.ErrorIs(t, ErrUnknownID, index.ErrNotFound)
	require.ErrorIs(t, ErrOption, index.ErrOption)
	require.ErrorIs(t, ErrClosed, storage.ErrClosed)
	require.NotErrorIs(t, index.ErrNotFound, ErrUnknownID)
}
