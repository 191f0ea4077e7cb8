package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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
func (o *clusterOptions) nodes(ctx context.Context, called string, n, shards, replicas int) (s *studyNodes, err error) {
	s = &studyNodes{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for i := range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return s, err
		}
		node := &studyNode{door: &studyDoor{}}
		node.server = &http.Server{Handler: node.door}
		go func() { _ = node.server.Serve(listener) }()
		name := fmt.Sprintf("%s-%d", called, i)
		node.Cluster, err = cluster.Open(ctx, cluster.Config{
			Store: o.store, Place: o.address, Dir: filepath.Join(o.dir, called, name), Name: name, Address: "http://" + listener.Addr().String(),
			Shards: shards, Replicas: replicas, Index: store.Options{Threads: o.threads}, Deadline: patience,
		})
		if err != nil {
			return s, errors.Join(err, node.server.Close())
		}
		node.door.next.Store(node.Handler())
		s.all = append(s.all, node)
	}
	return s, s.await(ctx, func() bool { // all know of all
		return !slices.ContainsFunc(s.all, func(node *studyNode) bool {
			all := node.Layout().Nodes
			return len(all) < n || slices.ContainsFunc(all, func(other collection.Node) bool { return !other.Heard })
		})
	})
}

func (s *studyNodes) await(ctx context.Context, ok func() bool) error {
	for !ok() {
		if err := pauseFor(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ready waits until all replicas of a collection have their files.
func (s *studyNodes) ready(ctx context.Context, name string) error {
	return s.await(ctx, func() bool {
		all := s.all[0].Layout().Collections
		i := slices.IndexFunc(all, func(p collection.Placement) bool { return p.Name == name })
		return i >= 0 && !slices.ContainsFunc(all[i].Shards, func(shard collection.Shard) bool {
			return len(shard.Replicas) < all[i].Replicas || slices.ContainsFunc(shard.Replicas, func(r collection.Replica) bool { return r.State != "ready" })
		})
	})
}

func (s *studyNodes) close() (err error) {
	for _, n := range s.all {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		err = errors.Join(err, n.Close(ctx), n.server.Close())
		stop()
	}
	return err
}

// handle is that of a collection in a set, as soon as it is known there.
func handle(ctx context.Context, set collection.Set, name string) (collection.Collection, error) {
	for {
		c, err := set.Get(name)
		if err == nil || !errors.Is(err, collection.ErrUnknown) {
			return c, err
		}
		if err := pauseFor(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// studyDoor lets requests wait while a node hangs.
type studyDoor struct {
	next atomic.Value // http.Handler
	hung atomic.Bool
}

func (d *studyDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for d.hung.Load() && pauseFor(r.Context(), 5*time.Millisecond) == nil {
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
			if !yield(vectors.Document{ID: doc.ID, Tokens: doc.Vectors, Payload: doc.Metadata}, ctx.Err()) || ctx.Err() != nil {
				return
			}
		}
	}
}
