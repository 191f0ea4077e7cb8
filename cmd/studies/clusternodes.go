package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

// studyNode is a node of a cluster in this process.
type studyNode struct {
	*cluster.Cluster
	handler *pausableHandler
	server  *http.Server
}

// studyNodes are the nodes of a cluster.
type studyNodes struct{ nodes []*studyNode }

// startNodes starts n nodes of a cluster with some number of shards and replicas, and waits until
// all nodes know each other. Their names begin with prefix.
func (o *clusterOptions) startNodes(ctx context.Context, prefix string, n, shards, replicas int) *studyNodes {
	s := &studyNodes{}
	started := recoverFailure(func() {
		for i := range n {
			listener := must(net.Listen("tcp", "127.0.0.1:0"))
			node := &studyNode{handler: &pausableHandler{}}
			node.server = &http.Server{Handler: node.handler}
			s.nodes = append(s.nodes, node)
			go func() { _ = node.server.Serve(listener) }()
			name := fmt.Sprintf("%s-%d", prefix, i)
			node.Cluster = must(cluster.Open(ctx, cluster.Config{
				Store:        o.store,
				StoreAddress: o.address,
				Dir:          filepath.Join(o.dir, prefix, name),
				Name:         name,
				Address:      "http://" + listener.Addr().String(),
				Shards:       shards,
				Replicas:     replicas,
				Index:        store.Options{Threads: o.threads},
				Deadline:     clientTimeout,
			}))
			node.handler.next.Store(node.Handler())
		}
		waitUntil(ctx, func() bool { // until all nodes know each other
			return !slices.ContainsFunc(s.nodes, func(node *studyNode) bool {
				knownNodes := node.Layout().Nodes
				return len(knownNodes) < n || slices.ContainsFunc(knownNodes,
					func(other collection.Node) bool { return !other.Heard })
			})
		})
	})
	if started != nil {
		s.close()
		panicOn(started)
	}
	return s
}

// waitUntil waits until ok returns true.
func waitUntil(ctx context.Context, ok func() bool) {
	for !ok() {
		panicOn(ctx.Err())
		pauseFor(ctx, 20*time.Millisecond)
	}
}

// pauseFor waits for a time, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// catalogs returns the catalogs of all nodes.
func (s *studyNodes) catalogs() (catalogs []collection.Catalog) {
	for _, n := range s.nodes {
		catalogs = append(catalogs, n.Cluster)
	}
	return catalogs
}

// awaitReplicas waits until all replicas of a collection are ready.
func (s *studyNodes) awaitReplicas(ctx context.Context, name string) {
	notReady := func(r collection.Replica) bool { return r.State != "ready" }
	waitUntil(ctx, func() bool {
		collections := s.nodes[0].Layout().Collections
		i := slices.IndexFunc(collections, func(p collection.Placement) bool { return p.Name == name })
		return i >= 0 && !slices.ContainsFunc(collections[i].Shards, func(shard collection.Shard) bool {
			return len(shard.Replicas) < collections[i].Replicas || slices.ContainsFunc(shard.Replicas, notReady)
		})
	})
}

// close stops all nodes.
func (s *studyNodes) close() {
	ctx, stop := context.WithTimeout(context.Background(), clientTimeout)
	defer stop()
	for _, n := range s.nodes {
		if n.Cluster != nil {
			_ = n.Close(ctx)
		}
		_ = n.server.Close()
	}
}

// awaitCollection returns a collection of a catalog as soon as the catalog knows it.
func awaitCollection(ctx context.Context, catalog collection.Catalog, name string) (c collection.Collection) {
	waitUntil(ctx, func() bool {
		found, err := catalog.Get(name)
		if !errors.Is(err, collection.ErrUnknown) {
			c = must(found, err)
		}
		return c != nil
	})
	return c
}

// pausableHandler is the HTTP handler of a node. While hung is true, it answers no request, as if the node
// hung.
type pausableHandler struct {
	next atomic.Value // an http.Handler
	hung atomic.Bool
}

func (h *pausableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for h.hung.Load() && r.Context().Err() == nil {
		pauseFor(r.Context(), 5*time.Millisecond)
	}
	if next, ok := h.next.Load().(http.Handler); ok {
		next.ServeHTTP(w, r)
	}
}

// countingStore counts the requests to a store, and the bytes that are read.
type countingStore struct {
	objects.Store
	puts, others, bytesRead atomic.Int64
}

// requests returns the number of all requests.
func (c *countingStore) requests() int64 { return c.puts.Load() + c.others.Load() }

func (c *countingStore) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	c.puts.Add(1)
	return c.Store.Put(ctx, name, r, size)
}

func (c *countingStore) Replace(ctx context.Context, name string, body []byte) (time.Time, error) {
	c.others.Add(1)
	return c.Store.Replace(ctx, name, body)
}

func (c *countingStore) Get(
	ctx context.Context, name string, from, length int64,
) (io.ReadCloser, objects.Entry, error) {
	c.others.Add(1)
	r, e, err := c.Store.Get(ctx, name, from, length)
	if err == nil {
		if remaining := max(e.Size-from, 0); length < 0 || length > remaining {
			length = remaining
		}
		c.bytesRead.Add(length)
	}
	return r, e, err
}

func (c *countingStore) List(ctx context.Context, prefix, after string, limit int) ([]objects.Entry, error) {
	entries, err := c.Store.List(ctx, prefix, after, limit)
	c.others.Add(1 + int64(len(entries)/1000)) // a request for each page of names
	return entries, err
}

func (c *countingStore) Delete(ctx context.Context, name string) error {
	c.others.Add(1)
	return c.Store.Delete(ctx, name)
}

// randomDocuments is a source of random documents, which are made when they are read.
type randomDocuments struct {
	options *clusterOptions
	count   int
}

func (d *randomDocuments) Dim() int        { return d.options.dim }
func (d *randomDocuments) Len() int        { return d.count }
func (d *randomDocuments) Rows(int) int    { return d.options.tokens }
func (d *randomDocuments) ID(i int) string { return fmt.Sprintf("d%d", i) }
func (d *randomDocuments) Close() error    { return nil }

func (d *randomDocuments) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for i := from; i < to; i++ {
			doc := d.options.document(uint64(i), d.options.tokens)
			codec.Normalize(doc.Vectors, d.options.dim)
			d := vectors.Document{ID: doc.ID, Tokens: doc.Vectors, Payload: doc.Metadata}
			if !yield(d, ctx.Err()) || ctx.Err() != nil {
				return
			}
		}
	}
}

// document returns random document n, which is the same each time: n and the seeds 7 and 8 decide it.
func (o *clusterOptions) document(n uint64, tokens int) collection.DocumentInput {
	r := rand.New(rand.NewPCG(n, 7))
	v := make([]float32, 0, tokens*o.dim)
	topic := make([]float64, o.dim)
	for t := range tokens {
		if t%8 == 0 { // a new topic, one of 4,096 random points
			points := rand.New(rand.NewPCG(uint64(r.IntN(4096)), 8))
			for j := range topic {
				topic[j] = points.NormFloat64()
			}
		}
		for j := range o.dim {
			v = append(v, float32(topic[j]+.5*r.NormFloat64()))
		}
	}
	metadata := fmt.Appendf(nil, `{"n":%d}`, n%1000)
	return collection.DocumentInput{
		ID:       fmt.Sprintf("d%d", n),
		Vectors:  v,
		Dim:      o.dim,
		Metadata: metadata,
	}
}
