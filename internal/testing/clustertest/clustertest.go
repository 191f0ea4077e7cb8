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

// Patience is how long tests wait for what must happen: much longer than it takes on a
// machine with nothing else to do.
const Patience = 2 * time.Minute

// Beat is that of nodes.
const Beat = 250 * time.Millisecond

// Options of a cluster. The zero value is three nodes over a folder.
type Options struct {
	Nodes  int           // n0, n1 …; 0: 3
	Store  objects.Store // nil: a folder
	Seed   uint64        // of the faults
	Change func(*cluster.Config)
}

// Cluster is some nodes.
type Cluster struct {
	T     testing.TB
	Dir   string
	Store *Store // that the nodes reach through a gate each
	o     Options

	mu    sync.Mutex
	nodes map[string]*Node
}

// Node is a process, as far as a process can be in another.
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
	c := &Cluster{T: t, Dir: t.TempDir(), o: o, nodes: map[string]*Node{}}
	if o.Store == nil {
		folder, err := objects.OpenFolder(filepath.Join(c.Dir, "store"))
		require.NoError(t, err)
		o.Store = folder
	}
	c.Store = NewStore(o.Store, o.Seed)
	t.Cleanup(func() {
		c.Store.Faults(0)
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
	c.Await(func() bool { // all know all, so that shards stay where they are
		return !slices.ContainsFunc(c.Nodes(), func(n *Node) bool {
			s := n.Status(t.Context())
			return len(s.Nodes) < o.Nodes ||
				slices.ContainsFunc(s.Nodes, func(n cluster.NodeStatus) bool { return !n.Answers })
		})
	})
	return c
}

// logger shows what happens where PLAID_CLUSTER_LOG is set.
func logger(name string) *slog.Logger {
	if os.Getenv("PLAID_CLUSTER_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", name)
}

// Start starts a node, or one again: with the cache that it has.
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

// TryStart is Start where the store may not let it.
func (c *Cluster) TryStart(ctx context.Context, name string) (*Node, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &Node{
		Name: name, Dir: filepath.Join(c.Dir, name), gate: &gate{newValve(), c.Store}, door: &door{valve: newValve()},
	}
	n.server = &http.Server{Handler: n.door, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func() { _ = n.server.Serve(listener) }()
	cfg := cluster.Config{
		Store: n.gate, Place: "a test", Dir: n.Dir, Name: name, Address: "http://" + listener.Addr().String(),
		Beat: Beat, Logger: logger(name), Index: store.Options{Threads: 1, Derive: store.DeriveKeywords(nil)},
	}
	if c.o.Change != nil {
		c.o.Change(&cfg)
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

// Node returns a node that runs; nil: it does not.
func (c *Cluster) Node(name string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

// Nodes are those that run.
func (c *Cluster) Nodes() (all []*Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		all = append(all, n)
	}
	return all
}

// leave takes a node off the list.
func (c *Cluster) leave(name string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[name]
	delete(c.nodes, name)
	return n
}

// Stop ends a node as it should be.
func (c *Cluster) Stop(name string) {
	c.T.Helper()
	n := c.leave(name)
	n.Resume()
	ctx, stop := context.WithTimeout(context.Background(), Patience)
	defer stop()
	if err := n.Close(ctx); err != nil {
		c.T.Errorf("%s is closed: %v", name, err)
	}
	_ = n.server.Close()
}

// Kill ends a node as a power failure would: others are not told, and what it has sent to the
// store may arrive or not. It returns when nothing of the node is left.
func (c *Cluster) Kill(name string) {
	c.T.Helper()
	n := c.leave(name)
	n.gate.set(cut)
	n.door.set(cut)
	_ = n.server.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = n.Close(ctx) // it cannot tell others
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

// Pause makes a node hang: what it asks the store, and what it is asked.
func (n *Node) Pause() {
	n.gate.set(hung)
	n.door.set(hung)
}

// Hang makes a node hang for others, while the store is there for it.
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

// Declared declares a collection at a node.
func (n *Node) Declared(t testing.TB, name string, cfg collection.Config) collection.Collection {
	t.Helper()
	c, err := n.Declare(t.Context(), name, cfg)
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

// Await waits until something is true.
func (c *Cluster) Await(ok func() bool) {
	c.T.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.T.Fatal("what must happen does not")
		}
	}
}
