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
	door   *studyDoor
	server *http.Server
}

type studyNodes struct{ all []*studyNode }

// nodes starts nodes of a cluster whose collections have some shards and replicas.
func (o *clusterOptions) nodes(ctx context.Context, called string, n, shards, replicas int) *studyNodes {
	s := &studyNodes{}
	started := caught(func() {
		for i := range n {
			listener := must(net.Listen("tcp", "127.0.0.1:0"))
			node := &studyNode{door: &studyDoor{}}
			node.server = &http.Server{Handler: node.door}
			s.all = append(s.all, node)
			go func() { _ = node.server.Serve(listener) }()
			name := fmt.Sprintf("%s-%d", called, i)
			node.Cluster = must(cluster.Open(ctx, cluster.Config{
				Store: o.store, Place: o.address, Dir: filepath.Join(o.dir, called, name), Name: name,
				Address: "http://" + listener.Addr().String(), Shards: shards, Replicas: replicas,
				Index: store.Options{Threads: o.threads}, Deadline: patience,
			}))
			node.door.next.Store(node.Handler())
		}
		await(ctx, func() bool { // all know of all
			return !slices.ContainsFunc(s.all, func(node *studyNode) bool {
				all := node.Layout().Nodes
				return len(all) < n || slices.ContainsFunc(all, func(other collection.Node) bool { return !other.Heard })
			})
		})
	})
	if started != nil {
		s.close()
		check(started)
	}
	return s
}

// await waits until ok.
func await(ctx context.Context, ok func() bool) {
	for !ok() {
		check(ctx.Err())
		pauseFor(ctx, 20*time.Millisecond)
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *studyNodes) sets() (all []collection.Catalog) {
	for _, n := range s.all {
		all = append(all, n.Cluster)
	}
	return all
}

// ready waits until all replicas of a collection have their files.
func (s *studyNodes) ready(ctx context.Context, name string) {
	waits := func(r collection.Replica) bool { return r.State != "ready" }
	await(ctx, func() bool {
		all := s.all[0].Layout().Collections
		i := slices.IndexFunc(all, func(p collection.Placement) bool { return p.Name == name })
		return i >= 0 && !slices.ContainsFunc(all[i].Shards, func(shard collection.Shard) bool {
			return len(shard.Replicas) < all[i].Replicas || slices.ContainsFunc(shard.Replicas, waits)
		})
	})
}

func (s *studyNodes) close() {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for _, n := range s.all {
		if n.Cluster != nil {
			_ = n.Close(ctx)
		}
		_ = n.server.Close()
	}
}

// handle is that of a collection in a set, as soon as it is known there.
func handle(ctx context.Context, set collection.Catalog, name string) (c collection.Collection) {
	await(ctx, func() bool {
		found, err := set.Get(name)
		if !errors.Is(err, collection.ErrUnknown) {
			c = must(found, err)
		}
		return c != nil
	})
	return c
}

// studyDoor lets requests wait while a node hangs.
type studyDoor struct {
	next atomic.Value // http.Handler
	hung atomic.Bool
}

func (d *studyDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for d.hung.Load() && r.Context().Err() == nil {
		pauseFor(r.Context(), 5*time.Millisecond)
	}
	if next, ok := d.next.Load().(http.Handler); ok {
		next.ServeHTTP(w, r)
	}
}

// counting counts what is asked of a store.
type counting struct {
	objects.Store
	puts, others, read atomic.Int64
}

func (c *counting) asked() int64 { return c.puts.Load() + c.others.Load() }

func (c *counting) Put(ctx context.Context, name string, r io.Reader, size int64) (time.Time, error) {
	c.puts.Add(1)
	return c.Store.Put(ctx, name, r, size)
}

func (c *counting) Replace(ctx context.Context, name string, body []byte) (time.Time, error) {
	c.others.Add(1)
	return c.Store.Replace(ctx, name, body)
}

func (c *counting) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, objects.Entry, error) {
	c.others.Add(1)
	r, e, err := c.Store.Get(ctx, name, from, length)
	if err == nil {
		if rest := max(e.Size-from, 0); length < 0 || length > rest {
			length = rest
		}
		c.read.Add(length)
	}
	return r, e, err
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]objects.Entry, error) {
	entries, err := c.Store.List(ctx, prefix, after, limit)
	c.others.Add(1 + int64(len(entries)/1000)) // pages
	return entries, err
}

func (c *counting) Delete(ctx context.Context, name string) error {
	c.others.Add(1)
	return c.Store.Delete(ctx, name)
}

// drawn is documents that are drawn at random, as they are asked for.
type drawn struct {
	o *clusterOptions
	n int
}

func (d *drawn) Dim() int        { return d.o.dim }
func (d *drawn) Len() int        { return d.n }
func (d *drawn) Rows(int) int    { return d.o.tokens }
func (d *drawn) ID(i int) string { return fmt.Sprintf("d%d", i) }
func (d *drawn) Close() error    { return nil }

func (d *drawn) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for i := from; i < to; i++ {
			doc := d.o.document(uint64(i), d.o.tokens)
			codec.Normalize(doc.Vectors, d.o.dim)
			d := vectors.Document{ID: doc.ID, Tokens: doc.Vectors, Payload: doc.Metadata}
			if !yield(d, ctx.Err()) || ctx.Err() != nil {
				return
			}
		}
	}
}

// document is the n-th of all documents, which is always the same.
func (o *clusterOptions) document(n uint64, tokens int) collection.DocumentInput {
	r := rand.New(rand.NewPCG(n, 7))
	v := make([]float32, 0, tokens*o.dim)
	topic := make([]float64, o.dim)
	for t := range tokens {
		if t%8 == 0 { // near one of 4,096 points
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
	return collection.DocumentInput{ID: fmt.Sprintf("d%d", n), Vectors: v, Dim: o.dim, Metadata: metadata}
}
