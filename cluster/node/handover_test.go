package node_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// A node that a shard is taken from keeps its replica until those that the shard was given to have
// all that it has acknowledged, and not only answer: else the log alone would have it.
func TestReplicaStaysUntilOthersHaveItsChanges(t *testing.T) {
	const dim = 8
	docs := searchtest.New(4, dim, 6).Docs("d", 21, 3)
	c := clustertest.New(t, 1)
	c.Collection("wiki", operate.CreateOptions{}, dim, docs[:20])
	f := c.Client(client.Config{Collection: "wiki"})
	_, err := f.Add(c.Ctx, searchtest.Source(t, dim, docs[20:]), nil)
	require.NoError(t, err)
	id := c.ID("wiki")
	// other answers, and its disk cannot keep up.
	other := func(applied uint64) {
		text, err := json.Marshal(topology.Lease{Node: "other", Started: "x",
			Shards: []topology.Serving{{Collection: id, Generation: 1, Ready: true, Applied: applied}}})
		require.NoError(t, err)
		_, err = c.Bus.Nodes.Put(c.Ctx, "other", text)
		require.NoError(t, err)
	}
	other(0)
	_, err = topology.NewStore(c.Store, c.Bus.Maps).Update(c.Ctx, id, func(m *topology.Map) error {
		m.Leave("n0")
		m.Join(topology.Member{Name: "other"})
		m.Assign()
		return nil
	})
	require.NoError(t, err)
	file := filepath.Join(c.Dir, "n0", id, "g1", "s0000.plaid")
	has := func() bool {
		return slices.ContainsFunc(c.Op.Watcher().Replicas(id, 1, 0), func(r topology.Replica) bool { return r.Node == "n0" })
	}
	require.Never(t, func() bool { return !has() }, 2*time.Second, 50*time.Millisecond)
	require.FileExists(t, file)
	other(1)
	c.Await(func() bool { return !has() })
	require.NoFileExists(t, file)
}
