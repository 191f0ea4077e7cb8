package quality

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search"
)

// TestSelfCheck: what is measured is stored and used; the same index gives the same.
func TestSelfCheck(t *testing.T) {
	ix, _, _ := recallCollection(t)
	e, snap, qs, _ := recallIndex(t)
	o := SelfCheckOptions{K: []int{10, 3}, Questions: 20}
	d, err := SelfCheck(t.Context(), e, snap, o)
	require.NoError(t, err)
	require.True(t, d.Passages)
	require.Equal(t, snap.State().Live, d.Docs)
	require.Len(t, d.Classes, 2)
	for i, k := range []int{3, 10} {
		c := d.Classes[i]
		require.Equal(t, k, c.K)
		require.Equal(t, 20, c.Queries)
		require.InDelta(t, 1-realLoss*(1-c.Recall), c.HeldOut, 1e-12)
		require.True(t, c.Confirmed() || c.Effort == effortLadder[len(effortLadder)-1])
	}
	require.NoError(t, d.Validate())
	again, err := SelfCheck(t.Context(), e, snap, o)
	require.NoError(t, err)
	require.Equal(t, d.Classes, again.Classes)

	// A search that names nothing does as much as the stored effort says.
	d.Classes[1].Effort = 4
	require.NoError(t, ix.SetDefaults(d))
	stored := engine(t, ix, search.EngineOptions{Threads: 1})
	docs := func(o search.Options) (n int64) {
		o.K = 10
		for _, q := range qs {
			n += find(t, stored, q, o).Stats.ExactDocs
		}
		return n
	}
	require.Equal(t, docs(search.Options{Effort: 4}), docs(search.Options{}))
	require.Greater(t, docs(search.Options{}), docs(search.Options{Effort: 0.25}))
	require.Equal(t, docs(search.Options{Effort: 1}), docs(search.Options{Derive: true}))
}

func TestSelfCheckRefuses(t *testing.T) {
	e, snap, _, _ := recallIndex(t)
	for _, o := range []SelfCheckOptions{{Recall: 1.5}, {Recall: -1}, {Questions: -1}, {K: []int{0}}, {K: []int{referenceDocs + 1}}} {
		_, err := SelfCheck(t.Context(), e, snap, o)
		require.ErrorIs(t, err, search.ErrOption)
	}
	d, err := SelfCheck(t.Context(), e, snap, SelfCheckOptions{})
	require.NoError(t, err)
	require.Nil(t, d, "so small an index is not worth a check")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = SelfCheck(ctx, e, snap, SelfCheckOptions{Questions: 20})
	require.ErrorIs(t, err, context.Canceled)
}
