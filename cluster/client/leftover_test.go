package client_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

func notThere(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return errors.Is(err, fs.ErrNotExist) }
}

// Of the files that a replica was put aside in, the last one stays, and goes with its generation.
func TestAside(t *testing.T) {
	docs, _ := documents(92, 40)
	c := clustertest.New(t, 2)
	c.Collection("wiki", operate.CreateOptions{Replicas: 2}, dim, docs)
	dir := filepath.Join(c.Dir, "n0", c.ID("wiki"), "g1")
	for range 3 {
		require.NoError(t, c.Op.Rejoin(c.Ctx, "wiki", "n0"))
		aside, err := filepath.Glob(filepath.Join(dir, "*.aside*"))
		require.NoError(t, err)
		require.Equal(t, []string{filepath.Join(dir, "s0000.plaid.aside")}, aside)
	}
	c.Build("wiki", dim, docs)
	require.Eventually(t, notThere(dir), clustertest.Patience, 10*time.Millisecond)
}

// A node that was away when a generation was over drops its files when it comes back, and what
// it had not finished. It keeps what nobody else has, and what it may be given again.
func TestLeftovers(t *testing.T) {
	docs, _ := documents(93, 40)
	c := clustertest.New(t, 2)
	for _, name := range []string{"wiki", "kept"} {
		c.Collection(name, operate.CreateOptions{Replicas: 2, Acks: 1}, dim, docs)
	}
	f := c.Client(client.Config{Collection: "kept"})
	at := func(name, folder string) string { return filepath.Join(c.Dir, "n0", c.ID(name), folder) }
	c.Ready("n0")
	c.Die("n0")
	// An entry of the log that the next generation does not have yet.
	ix, err := index.Open(c.Ctx, filepath.Join(at("kept", "g1"), "s0000.plaid"), &index.Options{Write: true})
	require.NoError(t, err)
	require.NoError(t, ix.Entry(1).Skip(c.Ctx))
	require.NoError(t, ix.Close())
	unfinished := []string{filepath.Join(c.Dir, "n0", "build", "shard-1"), filepath.Join(at("wiki", "g1"), "s0000.plaid.checkpoint")}
	for _, path := range unfinished {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	require.NoError(t, os.MkdirAll(at("wiki", "g99"), 0o755)) // of a map that may be restored
	require.NoError(t, os.MkdirAll(at("wiki", "g2"), 0o755))
	given := filepath.Join(at("wiki", "g2"), "s0007.plaid") // of the generation that is searched
	require.NoError(t, os.WriteFile(given, nil, 0o600))
	for _, name := range []string{"wiki", "kept"} {
		c.Build(name, dim, docs)
	}
	c.Start("n0")
	for _, path := range unfinished {
		require.Eventually(t, notThere(path), clustertest.Patience, 10*time.Millisecond, path)
	}
	require.Eventually(t, notThere(at("wiki", "g1")), clustertest.Patience, 10*time.Millisecond)
	c.Ready("n0")
	require.DirExists(t, at("wiki", "g99"))
	require.FileExists(t, given)
	require.DirExists(t, at("kept", "g1"), "it may be the only one with entry 1")
	_, err = f.Add(c.Ctx, searchtest.Source(t, dim, searchtest.New(1, dim, 6).Docs("e", 1, 3)), nil)
	require.NoError(t, err)
	require.Eventually(t, notThere(at("kept", "g1")), clustertest.Patience, 10*time.Millisecond)
}
