package search

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/searchtest"
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

func TestErrorsAreKinds(t *testing.T) {
	require.ErrorIs(t, ErrUnknownID, index.ErrNotFound)
	require.ErrorIs(t, ErrOption, index.ErrOption)
	require.ErrorIs(t, ErrClosed, storage.ErrClosed)
	require.NotErrorIs(t, index.ErrNotFound, ErrUnknownID)
}
