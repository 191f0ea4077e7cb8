package cluster

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
)

// The searcher of several shards does not keep the states in memory that were searched first.
func TestTogetherKeepsNoState(t *testing.T) {
	c := startNodes(t, 1, 2, nil)[0]
	wiki := declared(t, c, testDocs(0, 20, testDim)...)
	all := &jointSearcher{codecNumbers: map[*kernels.Codec]int{}}
	first := func() (kept []weak.Pointer[index.Snapshot]) {
		var parts []*index.Snapshot
		for _, r := range c.openReplicas(func(replicaKey) bool { return true }) {
			v, _, err := r.Snapshot(t.Context(), 0)
			require.NoError(t, err)
			defer func() { require.NoError(t, v.Close()) }()
			parts, kept = append(parts, v.Snapshot()), append(kept, weak.Make(v.Snapshot()))
		}
		_, err := all.searcherFor(t.Context(), c, parts)
		require.NoError(t, err)
		return kept
	}()
	add(t, wiki, testDocs(20, 20, testDim)) // replicas have other states now
	require.Len(t, first, 2)
	await(t, "the states are gone", func() bool {
		runtime.GC()
		return first[0].Value() == nil && first[1].Value() == nil
	})
	require.NotNil(t, all.multi)
}
