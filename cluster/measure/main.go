//go:build unix

// Command measure compares one shard called directly and through NATS. With -apart it has a
// front search nodes that are processes of their own. With -writers it counts changes of one
// document, with -idle what a cluster costs that nobody asks anything; earlier.sh builds these two
// of an earlier commit. docs/scale.md and docs/cluster.md have what it found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var docs vectors.Files
	flag.StringVar(&docs.Vectors, "vectors", "", "vectors of documents")
	flag.StringVar(&docs.Lengths, "lengths", "", "their lengths")
	flag.StringVar(&docs.IDs, "ids", "", "their ids")
	queries := flag.String("queries", "", "vectors of queries")
	k := flag.Int("k", 100, "documents a query")
	passes := flag.Int("passes", 5, "over the queries")
	writers := flag.Int("writers", 0, "count changes by so many writers at a time")
	tokens := flag.Int("tokens", 32, "with -writers: of a document")
	shards := flag.Int("idle", 0, "count messages of a cluster with so many shards on 2 nodes each that nobody asks anything")
	lasting := flag.Duration("lasting", 20*time.Second, "with -writers, -idle and -apart: how long to count")
	base := flag.String("apart", "", "measure real nodes, processes of one searching processor each, on the documents of this index")
	parts := flag.String("parts", strings.Join(allParts, ","), "with -apart: what to measure beside one node with everything")
	grownTo := flag.Int("grown", 0, "with -apart: draw documents, with noise, until there are so many tokens")
	name := flag.String("node", "", "be this node: what -apart starts")
	server := flag.String("server", "", "with -node: address of the server")
	dir := flag.String("dir", "", "with -node: folder of the cluster")
	flag.Parse()
	var err error
	if *name != "" {
		err = runNode(ctx, *name, *server, *dir)
	} else if *base != "" {
		err = nodesApart(ctx, *base, *queries, strings.Split(*parts, ","), *k, *grownTo, *lasting)
	} else if *writers > 0 {
		err = writes(ctx, *writers, *tokens, *lasting)
	} else if *shards > 0 {
		err = idle(ctx, *shards, 2, 2, *lasting)
	} else {
		err = oneNode(ctx, docs, *queries, *k, *passes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

// oneNode asks an index and a node with the same index in turn.
func oneNode(ctx context.Context, docs vectors.Files, queries string, k, passes int) (err error) {
	dir, err := os.MkdirTemp("", "plaid-measure-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	qs, err := read(ctx, queries)
	if err != nil {
		return err
	}
	r, err := newRig(ctx, dir, docs)
	if err != nil {
		return err
	}
	defer r.close()
	return r.compare(ctx, qs, k, passes)
}

func read(ctx context.Context, path string) ([]search.Query, error) {
	src, err := vectors.Open(ctx, vectors.Files{Vectors: path})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var qs []search.Query
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return nil, err
		}
		qs = append(qs, search.Query{Vectors: slices.Clone(d.Tokens), Dim: src.Dim()})
	}
	return qs, nil
}

// rig is a cluster of one node and one shard, and the same index opened directly.
type rig struct {
	front  *client.Client
	engine *search.Engine
	ends
}

func newRig(ctx context.Context, dir string, docs vectors.Files) (r *rig, err error) {
	r = &rig{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	s, err := bus.StartServer(ctx, bus.ServerOptions{Name: "one", Dir: filepath.Join(dir, "nats")})
	if err != nil {
		return r, err
	}
	r.later(s.Close)
	conn, err := s.Connect("measure")
	if err != nil {
		return r, err
	}
	r.later(conn.Close)
	b, err := bus.Setup(ctx, conn, 1, time.Minute)
	if err != nil {
		return r, err
	}
	store, err := objects.OpenFolder(filepath.Join(dir, "store"))
	if err != nil {
		return r, err
	}
	n, err := node.Start(ctx, b, store, node.Config{Name: "n0", Dir: filepath.Join(dir, "n0"), Builds: true, Threads: 1})
	if err != nil {
		return r, err
	}
	r.later(n.Close)
	op, err := operate.New(ctx, b, store, nil)
	if err != nil {
		return r, err
	}
	r.later(op.Close)
	if err := op.Watcher().Wait(ctx, func() bool { return len(op.Nodes()) == 1 }); err != nil {
		return r, err
	}
	if _, err := op.Create(ctx, "one", operate.CreateOptions{}); err != nil {
		return r, err
	}
	src, err := vectors.Open(ctx, docs)
	if err != nil {
		return r, err
	}
	defer src.Close()
	if _, err := op.Build(ctx, "one", src, operate.BuildOptions{Dir: dir}); err != nil {
		return r, err
	}
	m, err := op.Promote(ctx, "one")
	if err != nil {
		return r, err
	}
	if r.front, err = client.New(ctx, conn, client.Config{Collection: "one"}); err != nil {
		return r, err
	}
	r.later(func() { _ = r.front.Close() })
	if err := r.front.Watcher().Wait(ctx, func() bool { m, err := r.front.Watcher().Map("one"); return err == nil && m.Current != nil }); err != nil {
		return r, err
	}
	file := filepath.Join(dir, "direct.plaid")
	if err := objects.Fetch(ctx, store, m.Current.Shards[0].Object, file); err != nil {
		return r, err
	}
	ix, err := index.Open(ctx, file, nil)
	if err != nil {
		return r, err
	}
	r.later(func() { _ = ix.Close() })
	if r.engine, err = search.New(ctx, ix, &search.EngineOptions{Threads: 1}); err != nil {
		return r, err
	}
	r.later(func() { _ = r.engine.Close() })
	return r, nil
}

// compare asks both in turn, each first every other time.
func (r *rig) compare(ctx context.Context, qs []search.Query, k, passes int) error {
	for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
		var direct, front []float64
		for pass := range passes + 1 {
			for i, q := range qs {
				for turn := range 2 {
					searcher, took := search.Searcher(r.engine), &direct
					if (turn+i+pass)%2 == 1 {
						searcher, took = r.front, &front
					}
					began := time.Now()
					if _, err := searcher.Search(ctx, q, search.Options{K: k, Mode: mode}); err != nil {
						return err
					}
					if pass > 0 { // the first pass warms up
						*took = append(*took, milliseconds(time.Since(began)))
					}
				}
			}
		}
		d, f := median(direct), median(front)
		fmt.Printf("%v, k = %d: direct %.3f ms, through NATS %.3f ms: %.3f times; least %.3f and %.3f ms\n", mode, k, d, f, f/d, direct[0], front[0])
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

// median of some times; they are sorted.
func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}
