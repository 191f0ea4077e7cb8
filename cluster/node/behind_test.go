package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// A replica that was away while its log grew longer than the shard's object begins with that; one
// that was away for a few entries goes on by the log. It has all changes in both cases.
func TestReplicaFarBehindBeginsWithTheObject(t *testing.T) {
	const dim = 8
	node.FarFrom(t, 20)
	maker := searchtest.New(3, dim, 6)
	docs := maker.Docs("d", 20, 3)
	c := clustertest.New(t, 3)
	c.Collection("wiki", operate.CreateOptions{Shards: 1, Replicas: 3, Acks: 2}, dim, docs)
	f := c.Client(client.Config{Collection: "wiki"})
	rebuilds := func() (n uint64) {
		for _, l := range c.Op.Watcher().Leases() {
			if l.Node == "n2" && l.Started == c.Nodes["n2"].Life() {
				n = l.Counts.Rebuilds
			}
		}
		return n
	}
	for i, changes := range []int{5, 60} {
		c.Ready("n2")
		c.Stop("n2")
		var last vectors.Document
		for n := range changes { // a vector takes five times as much of an entry as of the object
			last = vectors.Document{ID: "d1", Tokens: maker.Tokens(1000), Payload: fmt.Appendf(nil, `{"v":%d}`, n)}
			_, err := f.Add(c.Ctx, searchtest.Source(t, dim, []vectors.Document{last}), &client.WriteOptions{Replace: true})
			require.NoError(t, err)
		}
		m, err := c.Op.Checkpoint(c.Ctx, "wiki")
		require.NoError(t, err)
		c.Await(func() bool { // until leases say so, n2 is not sure that others answer
			others := 0
			for _, r := range c.Op.Watcher().Replicas(m.ID(), m.Current.Number, 0) {
				if r.Node != "n2" && r.Ready && r.Applied >= m.Current.Shards[0].Applied {
					others++
				}
			}
			return others == 2
		})
		_, err = f.Delete(c.Ctx, []string{"d2"}, nil) // which the object does not have
		require.NoError(t, err)
		c.Start("n2")
		c.Ready("n2")
		c.Await(func() bool { return rebuilds() == uint64(i) })
		aside, err := filepath.Glob(filepath.Join(c.Dir, "n2", "*", "*.aside"))
		require.NoError(t, err)
		for _, path := range aside {
			require.NoError(t, os.RemoveAll(path))
		}
		assert.LessOrEqual(t, len(aside), i)
		_, err = c.Op.Verify(c.Ctx, "wiki") // which reads all three
		require.NoError(t, err)
		r, err := f.Search(c.Ctx, search.Query{Vectors: maker.Tokens(2)}, search.Options{K: 100, Mode: search.Exhaustive, Payload: true})
		require.NoError(t, err)
		seen := map[string]string{}
		for _, h := range r.Hits {
			seen[h.ID] = string(h.Payload)
		}
		assert.Equal(t, string(last.Payload), seen["d1"])
		assert.NotContains(t, seen, "d2")
	}
}
