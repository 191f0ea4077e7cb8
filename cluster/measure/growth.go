//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// cluster is one server with real nodes, all in this process.
type cluster struct {
	server *bus.Server
	bus    *bus.Bus
	op     *operate.Operator
	ends
}

// ends are what is to be ended, the last one first.
type ends []func()

func (e *ends) later(end func()) { *e = append(*e, end) }

func (e *ends) close() {
	for _, end := range slices.Backward(*e) {
		end()
	}
}

func (c *cluster) connect(name string) (*nats.Conn, error) {
	conn, err := c.server.Connect(name)
	if err == nil {
		c.later(conn.Close)
	}
	return conn, err
}

// newCluster starts nodes and gives them a collection of a codec and no documents.
func newCluster(ctx context.Context, dir string, nodes int, collection string, o operate.CreateOptions) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.server, err = bus.StartServer(ctx, bus.ServerOptions{Name: "one", Dir: filepath.Join(dir, "nats")}); err != nil {
		return c, err
	}
	c.later(c.server.Close)
	conn, err := c.connect("operator")
	if err != nil {
		return c, err
	}
	if c.bus, err = bus.Setup(ctx, conn, 1, 0); err != nil {
		return c, err
	}
	store, err := objects.OpenFolder(filepath.Join(dir, "store"))
	if err != nil {
		return c, err
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		if conn, err = c.connect(name); err != nil {
			return c, err
		}
		b, err := bus.Open(ctx, conn)
		if err != nil {
			return c, err
		}
		n, err := node.Start(ctx, b, store, node.Config{Name: name, Dir: filepath.Join(dir, name), Builds: true, Threads: 1})
		if err != nil {
			return c, err
		}
		c.later(n.Close)
	}
	if c.op, err = operate.New(ctx, c.bus, store, nil); err != nil {
		return c, err
	}
	c.later(c.op.Close)
	if err := c.op.Watcher().Wait(ctx, func() bool { return len(c.op.Nodes()) == nodes }); err != nil {
		return c, err
	}
	m, err := c.op.Create(ctx, collection, o)
	if err != nil {
		return c, err
	}
	src, err := vectors.FromDocuments(wide, randomDocuments(64, 32, 0))
	if err != nil {
		return c, err
	}
	if err := c.op.Watcher().Wait(ctx, func() bool { _, err := c.op.Watcher().MapOf(m.ID()); return err == nil }); err != nil {
		return c, err
	}
	_, err = c.op.Begin(ctx, m.ID(), src, operate.BuildOptions{Dir: dir, Train: index.BuildOptions{Nbits: 2, Centroids: 64, Threads: 1}})
	return c, err
}

// wide is the dimension of documents.
const wide = 128

func randomDocuments(n, tokens int, seed uint64) []vectors.Document {
	rng := rand.New(rand.NewPCG(seed, 5))
	docs := make([]vectors.Document, n)
	for i := range docs {
		docs[i] = vectors.Document{ID: fmt.Sprintf("%d-%d", seed, i), Tokens: make([]float32, wide*tokens)}
		for j := range docs[i].Tokens {
			docs[i].Tokens[j] = float32(rng.NormFloat64())
		}
	}
	return docs
}

// writes adds documents one at a time by so many writers at a time.
func writes(ctx context.Context, writers, tokens int, lasting time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "plaid-measure-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := newCluster(ctx, dir, 3, "one", operate.CreateOptions{Replicas: 3})
	if err != nil {
		return err
	}
	defer c.close()
	conn, err := c.connect("front")
	if err != nil {
		return err
	}
	f, err := client.New(ctx, conn, client.Config{Collection: "one"})
	if err != nil {
		return err
	}
	defer f.Close()
	var done atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, writers)
	began := time.Now()
	for w := range writers {
		wg.Go(func() {
			docs := randomDocuments(64, tokens, uint64(w+1))
			for i := 0; time.Since(began) < lasting && errs[w] == nil; i++ {
				d := docs[i%len(docs)]
				d.ID = fmt.Sprintf("%d-%d", w, i)
				var src vectors.Source
				if src, errs[w] = vectors.FromDocuments(wide, []vectors.Document{d}); errs[w] == nil {
					_, errs[w] = f.Add(ctx, src, nil)
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	took := time.Since(began)
	stream, err := c.bus.JS.Stream(ctx, bus.LogStream(mustID(c, "one"), 0))
	if err != nil {
		return err
	}
	fmt.Printf("%d writers, one document of %d tokens at a time, 1 shard on 3 nodes of which 2 acknowledge: %.0f documents a second, %.1f a log entry, %.1f ms each\n",
		writers, tokens, float64(done.Load())/took.Seconds(), float64(done.Load())/float64(stream.CachedInfo().State.LastSeq), milliseconds(took)*float64(writers)/float64(done.Load()))
	return nil
}

func mustID(c *cluster, collection string) string {
	m, err := c.op.Watcher().Map(collection)
	if err != nil {
		return ""
	}
	return m.ID()
}

// idle counts what a cluster does that nobody asks anything.
func idle(ctx context.Context, shards, replicas, nodes int, lasting time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "plaid-measure-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := newCluster(ctx, dir, nodes, "many", operate.CreateOptions{Shards: shards, Replicas: replicas})
	if err != nil {
		return err
	}
	defer c.close()
	time.Sleep(10 * time.Second) // what began is over
	before, err := c.server.Messages()
	if err != nil {
		return err
	}
	cpu := processorTime()
	time.Sleep(lasting)
	after, err := c.server.Messages()
	if err != nil {
		return err
	}
	fmt.Printf("%d shards x %d replicas on %d nodes: %.1f messages a second to the server, %.1f from it, %.2f of a processor\n", shards, replicas, nodes,
		float64(after.In-before.In)/lasting.Seconds(), float64(after.Out-before.Out)/lasting.Seconds(), float64(processorTime()-cpu)/float64(lasting))
	leases := c.op.Watcher().Leases()
	text, err := json.Marshal(leases[0])
	if err == nil {
		fmt.Printf("a lease has %d bytes\n", len(text))
	}
	return err
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
