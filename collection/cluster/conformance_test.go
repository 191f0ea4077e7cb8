package cluster

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/collectiontest"
	"github.com/plaid-ir/plaid/storage/objects"
)

// startNodes opens nodes over one folder, each with its own cache and server.
func startNodes(t testing.TB, nodes, shards int, change func(*Config)) []*Cluster {
	dir := t.TempDir()
	var all []*Cluster
	for i := range nodes {
		objects, err := objects.OpenFolder(dir)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(nil)
		c := Config{
			Store: objects, Place: dir, Dir: t.TempDir(), Name: fmt.Sprintf("n%d", i), Address: "http://" + server.Listener.Addr().String(),
			Shards: shards, Replicas: 2, Beat: 100 * time.Millisecond, Deadline: 20 * time.Second,
			Index: store.Options{Threads: 1, Derive: store.DeriveKeywords(nil)},
		}
		if change != nil {
			change(&c)
		}
		node, err := Open(t.Context(), c)
		require.NoError(t, err)
		server.Config.Handler = node.Handler()
		server.Start()
		t.Cleanup(func() {
			ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
			defer stop()
			require.NoError(t, node.Close(ctx))
			server.CloseClientConnections()
			server.Close()
		})
		all = append(all, node)
	}
	for _, c := range all {
		require.Eventually(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.nodes) == nodes
		}, 20*time.Second, 10*time.Millisecond)
	}
	return all
}

func TestConformance(t *testing.T) {
	for _, n := range []struct{ nodes, shards int }{{1, 1}, {1, 3}, {3, 1}, {3, 3}} {
		t.Run(fmt.Sprintf("%d nodes, %d shards", n.nodes, n.shards), func(t *testing.T) {
			all := startNodes(t, n.nodes, n.shards, nil)
			collectiontest.RunShards(t, all[n.nodes-1], n.shards)
		})
	}
}
