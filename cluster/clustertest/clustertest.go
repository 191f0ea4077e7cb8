// Package clustertest runs clusters in the process of a test.
package clustertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// Patience is how long tests wait for what must happen: much longer than it takes on a
// machine with nothing else to do.
const Patience = 2 * time.Minute

// Cluster is one server with some nodes.
type Cluster struct {
	T      testing.TB
	Ctx    context.Context
	Dir    string
	Server *bus.Server
	Bus    *bus.Bus
	Store  objects.Store
	Op     *operate.Operator
	Nodes  map[string]*node.Node
	conns  map[string]*nats.Conn
}

// New starts a server and nodes n0, n1 … that build.
func New(t testing.TB, nodes int) *Cluster {
	t.Helper()
	return NewOver(t, nodes, nil)
}

// NewOver is New with an object store; nil: in a folder.
func NewOver(t testing.TB, nodes int, store objects.Store) *Cluster {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(stop)
	c := &Cluster{T: t, Ctx: ctx, Dir: t.TempDir(), Nodes: map[string]*node.Node{}, conns: map[string]*nats.Conn{}}
	var err error
	c.Server, err = bus.StartServer(ctx, bus.ServerOptions{Name: "one", Dir: filepath.Join(c.Dir, "nats")})
	require.NoError(t, err)
	t.Cleanup(c.Server.Close)
	c.Bus, err = bus.Setup(ctx, c.Connect("operator"), 1, time.Minute) // leases outlive pauses of a busy machine
	require.NoError(t, err)
	if c.Store = store; store == nil {
		c.Store, err = objects.OpenFolder(filepath.Join(c.Dir, "store"))
		require.NoError(t, err)
	}
	c.Op, err = operate.New(ctx, c.Bus, c.Store, nil)
	require.NoError(t, err)
	t.Cleanup(c.Op.Close)
	for i := range nodes {
		c.Start(fmt.Sprintf("n%d", i))
	}
	c.Await(func() bool { return len(c.Op.Nodes()) == nodes })
	return c
}

// Connect returns a connection to the server, closed at the end.
func (c *Cluster) Connect(name string) *nats.Conn {
	c.T.Helper()
	conn, err := c.Server.Connect(name)
	require.NoError(c.T, err)
	c.T.Cleanup(conn.Close)
	return conn
}

// Start starts a node on the files that it has.
func (c *Cluster) Start(name string, change ...func(*node.Config)) *node.Node {
	c.T.Helper()
	conn := c.Connect(name)
	b, err := bus.Open(c.Ctx, conn)
	require.NoError(c.T, err)
	cfg := node.Config{
		Name: name, Dir: filepath.Join(c.Dir, name), Builds: true, Renew: 200 * time.Millisecond, Linger: 200 * time.Millisecond, Logger: logger(), Threads: 1,
	}
	for _, f := range change {
		f(&cfg)
	}
	n, err := node.Start(c.Ctx, b, c.Store, cfg)
	require.NoError(c.T, err)
	c.T.Cleanup(n.Close)
	c.Nodes[name], c.conns[name] = n, conn
	return n
}

// Ready waits until a node answers for all that it is given, and the operator knows.
func (c *Cluster) Ready(name string) {
	c.T.Helper()
	n := c.Nodes[name]
	require.NoError(c.T, n.Ready(c.Ctx))
	c.Await(func() bool {
		for _, l := range c.Op.Watcher().Leases() {
			if l.Node == name && l.Started == n.Life() && len(l.Shards) > 0 {
				return !slices.ContainsFunc(l.Shards, func(s topology.Serving) bool { return !s.Ready })
			}
		}
		return false
	})
}

// Stop ends a node as if it had been cut off: nobody is told.
func (c *Cluster) Stop(name string) {
	c.conns[name].Close()
	c.Nodes[name].Close()
	delete(c.Nodes, name)
}

// Die ends a node and its lease: others hear that it has gone.
func (c *Cluster) Die(name string) {
	c.T.Helper()
	c.Stop(name)
	require.NoError(c.T, c.Bus.Nodes.Delete(c.Ctx, name))
	c.Await(func() bool {
		return !slices.ContainsFunc(c.Op.Nodes(), func(n topology.Member) bool { return n.Name == name })
	})
}

// Lose takes a document out of the file of a node's replica, of which nobody is told.
func (c *Cluster) Lose(name, collection, id string) {
	c.T.Helper()
	m, err := c.Op.Watcher().Map(collection)
	require.NoError(c.T, err)
	c.Stop(name)
	file := filepath.Join(c.Dir, name, m.ID(), fmt.Sprintf("g%d", m.Current.Number), fmt.Sprintf("s%04d.plaid", m.ShardOf(id)))
	ix, err := index.Open(c.Ctx, file, &index.Options{Write: true})
	require.NoError(c.T, err)
	n, _, err := ix.Delete(c.Ctx, []string{id})
	require.NoError(c.T, err)
	require.Equal(c.T, 1, n.Documents)
	require.NoError(c.T, ix.Close())
	c.Start(name)
	c.Ready(name)
}

// logger shows what happens where PLAID_CLUSTER_LOG is set.
func logger() *slog.Logger {
	if os.Getenv("PLAID_CLUSTER_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// Await waits until something is true of the nodes and maps.
func (c *Cluster) Await(ok func() bool) {
	c.T.Helper()
	require.NoError(c.T, c.Op.Watcher().Wait(c.Ctx, ok))
}

// Client returns a client of a collection, closed at the end.
func (c *Cluster) Client(cfg client.Config) *client.Client {
	c.T.Helper()
	if cfg.Deadline == 0 {
		cfg.Deadline = Patience
	}
	if cfg.WriteDeadline == 0 {
		cfg.WriteDeadline = Patience
	}
	f, err := client.New(c.Ctx, c.Connect("front"), cfg)
	require.NoError(c.T, err)
	c.T.Cleanup(func() { _ = f.Close() })
	return f
}

// ID is the identity of the collection that has a name now.
func (c *Cluster) ID(name string) string {
	c.T.Helper()
	m, err := c.Op.Watcher().Map(name)
	require.NoError(c.T, err)
	return m.ID()
}

// Train are options that make small codecs.
var Train = index.BuildOptions{Nbits: 2, Centroids: 16, Threads: 1}

// Collection makes, builds and promotes a collection of documents.
func (c *Cluster) Collection(name string, o operate.CreateOptions, dim int, docs []vectors.Document) {
	c.T.Helper()
	_, err := c.Op.Create(c.Ctx, name, o)
	require.NoError(c.T, err)
	c.Build(name, dim, docs)
}

// Build makes the next generation of a collection and promotes it.
func (c *Cluster) Build(name string, dim int, docs []vectors.Document) {
	c.T.Helper()
	_, err := c.Op.Build(c.Ctx, name, searchtest.Source(c.T, dim, docs), operate.BuildOptions{Train: Train, Dir: c.T.TempDir()})
	require.NoError(c.T, err)
	m, err := c.Op.Promote(c.Ctx, name)
	require.NoError(c.T, err)
	c.Await(func() bool { now, err := c.Op.Watcher().Map(name); return err == nil && now.Version >= m.Version })
}
