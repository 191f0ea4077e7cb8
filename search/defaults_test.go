package search

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/storage"
)

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
	docs := m.Docs("d", 1500, 12)
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
		least.Effort, most.Effort = LeastEffort, MostEffort
		little, much := exact(e, least), exact(e, most)
		require.Less(t, little, much)
		require.NoError(t, ix.SetDefaults(stored(MostEffort)))
		require.Equal(t, much, exact(e, o))
		with := q
		with.Filter = o.Filter
		require.Equal(t, much, search(t, e, with, Options{K: 10, Mode: Pruned}).Stats.ExactDocs, "a filter of the query")

		s := multi(t, set, 1)
		all := set.Files()
		little, much = exact(s, least), exact(s, most)
		require.Less(t, little, much)
		require.NoError(t, all[0].SetDefaults(stored(LeastEffort)))
		require.NoError(t, all[1].SetDefaults(stored(MostEffort)))
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
