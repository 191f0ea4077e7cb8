// Package clustertest runs the nodes of a cluster in the process of a test, over an object store
// with faults: nodes are killed, paused, cut off and started again, with or without their cache.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Patience is how long tests wait for an event: much longer than it takes on an idle
// machine.
const Patience = 2 * time.Minute

// Beat is [cluster.Config.Beat] of the nodes.
const Beat = 250 * time.Millisecond

// Options of a cluster. The zero value is three nodes over a folder.
type Options struct {
	Nodes  int                   // n0, n1 … 0 means 3
	Store  objects.Store         // nil means a folder
	Seed   uint64                // of the faults
	Change func(*cluster.Config) // changes the configuration of each node. It may be nil
}

// Cluster is a cluster in the process of a test.
type Cluster struct {
	T       testing.TB
	Dir     string
	Store   *Store // each node reaches it through its gate
	options Options

	mu    sync.Mutex
	nodes map[string]*Node
}

// Node is a node, which stands for a process.
type Node struct {
	*cluster.Cluster
	Name string
	Dir  string // of its cache

	gate   *gate
	door   *door
	server *http.Server
}

// New starts a cluster for as long as a test runs.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{T: t, Dir: t.TempDir(), options: o, nodes: map[string]*Node{}}
	if o.Store == nil {
		folder, err := objects.OpenFolder(filepath.Join(c.Dir, "store"))
		require.NoError(t, err)
		o.Store = folder
	}
	c.Store = NewStore(o.Store, o.Seed)
	t.Cleanup(func() {
		c.Store.SetFaultShare(0)
		c.Store.Decide(nil)
		for _, n := range c.Nodes() {
			c.Stop(n.Name)
		}
		c.Store.Wait()
	})
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	for i := range o.Nodes {
		c.Start(fmt.Sprint("n", i))
	}
	c.Await(func() bool { // all nodes know each other, so that shards do not move
		return !slices.ContainsFunc(c.Nodes(), func(n *Node) bool {
			s := n.Status(t.Context())
			return len(s.Nodes) < o.Nodes ||
				slices.ContainsFunc(s.Nodes, func(n cluster.NodeStatus) bool { return !n.Answers })
		})
	})
	return c
}

// logger returns a logger to the standard error if PLAID_CLUSTER_LOG is set, or else nil.
func logger(name string) *slog.Logger {
	if os.Getenv("PLAID_CLUSTER_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", name)
}

// Start starts a node, with the cache that it has from an earlier start.
func (c *Cluster) Start(name string) *Node {
	c.T.Helper()
	for end := time.Now().Add(Patience); ; {
		n, err := c.TryStart(c.T.Context(), name)
		if errors.Is(err, collection.ErrUnreachable) && time.Now().Before(end) {
			continue // the store has faults
		}
		require.NoError(c.T, err)
		return n
	}
}

// TryStart is Start, and returns an error if the store has faults.
func (c *Cluster) TryStart(ctx context.Context, name string) (*Node, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &Node{
		Name: name,
		Dir:  filepath.Join(c.Dir, name),
		gate: &gate{newValve(), c.Store},
		door: &door{valve: newValve()},
	}
	n.server = &http.Server{Handler: n.door, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func() { _ = n.server.Serve(listener) }()
	cfg := cluster.Config{
		Store:        n.gate,
		StoreAddress: "a test",
		Dir:          n.Dir,
		Name:         name,
		Address:      "http://" + listener.Addr().String(),
		Beat:         Beat,
		Logger:       logger(name),
		Index:        store.Options{Threads: 1, Derive: store.DeriveKeywords(nil)},
	}
	if c.options.Change != nil {
		c.options.Change(&cfg)
	}
	n.Cluster, err = cluster.Open(ctx, cfg)
	if err != nil {
		_ = n.server.Close()
		return nil, err
	}
	handler := n.Handler()
	n.door.next.Store(&handler)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[name] = n
	return n, nil
}

// Node returns a running node, nil if it does not run.
func (c *Cluster) Node(name string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

// Nodes returns the running nodes.
func (c *Cluster) Nodes() (nodes []*Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// removeNode removes a node from the running nodes.
func (c *Cluster) removeNode(name string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[name]
	delete(c.nodes, name)
	return n
}

// Stop ends a node in an orderly way.
func (c *Cluster) Stop(name string) {
	c.T.Helper()
	n := c.removeNode(name)
	n.Resume()
	ctx, stop := context.WithTimeout(context.Background(), Patience)
	defer stop()
	if err := n.Close(ctx); err != nil {
		c.T.Errorf("%s is closed: %v", name, err)
	}
	_ = n.server.Close()
}

// Kill ends a node as a power failure would: it does not notify others, and its requests to the
// store may be performed or not. Kill returns when the node has ended.
func (c *Cluster) Kill(name string) {
	c.T.Helper()
	n := c.removeNode(name)
	n.gate.set(cut)
	n.door.set(cut)
	_ = n.server.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = n.Close(ctx) // it fails, since the node is cut off
	}()
	select {
	case <-ended:
	case <-time.After(Patience):
		c.T.Errorf("%s does not end without its store", name)
	}
}

// Forget removes the cache of a node that does not run.
func (c *Cluster) Forget(name string) {
	c.T.Helper()
	require.NoError(c.T, os.RemoveAll(filepath.Join(c.Dir, name)))
}

// Pause makes all requests of a node to the store, and of others to the node, hang.
func (n *Node) Pause() {
	n.gate.set(hung)
	n.door.set(hung)
}

// Hang makes the requests of others to a node hang, while it reaches the store.
func (n *Node) Hang() { n.door.set(hung) }

// Resume ends Pause and Hang.
func (n *Node) Resume() {
	n.gate.set(open)
	n.door.set(open)
}

// Objects lists the objects of the store whose names begin with a prefix and contain a text.
func (c *Cluster) Objects(prefix, with string) (names []string) {
	c.T.Helper()
	entries, err := c.Store.List(c.T.Context(), prefix, "", 0)
	require.NoError(c.T, err)
	for _, e := range entries {
		if strings.Contains(e.Name, with) {
			names = append(names, e.Name)
		}
	}
	return names
}

// MustCreate declares a collection at a node.
func (n *Node) MustCreate(t testing.TB, name string, cfg collection.Config) collection.Collection {
	t.Helper()
	c, err := n.Create(t.Context(), name, cfg)
	require.NoError(t, err)
	return c
}

// Get waits until a node knows of a collection.
func (c *Cluster) Get(n *Node, name string) collection.Collection {
	c.T.Helper()
	var found collection.Collection
	c.Await(func() bool {
		var err error
		found, err = n.Cluster.Get(name)
		return err == nil
	})
	return found
}

// Await waits until condition returns true, and fails the test after Patience.
func (c *Cluster) Await(condition func() bool) {
	c.T.Helper()
	for end := time.Now().Add(Patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.T.Fatal("the condition does not become true")
		}
	}
}
