// Command measure compares one shard called directly and through NATS, and simulates
// clusters of up to a thousand shards from the times that it measured. With -nodes it
// has a front search nodes that sleep for as long as searches take.
// docs/scale.md has what it found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/studies/program"
	"github.com/plaid-ir/plaid/vectors"
)

func main() { program.Main("measure", begin) }

// begin reads the flags, which say what is measured.
func begin(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("measure", flag.ContinueOnError)
	f.SetOutput(stderr)
	var docs vectors.Files
	f.StringVar(&docs.Vectors, "vectors", "", "vectors of documents")
	f.StringVar(&docs.Lengths, "lengths", "", "their lengths")
	f.StringVar(&docs.IDs, "ids", "", "their ids")
	queries := f.String("queries", "", "vectors of queries")
	k := f.Int("k", 100, "documents a query")
	passes := f.Int("passes", 5, "over the queries")
	seed := f.Uint64("seed", 1, "of the simulation")
	known := f.Bool("known", false, "measure nothing, and simulate from the times that docs/scale.md names")
	nodes := f.Bool("nodes", false, "measure what four nodes bring and what one that hangs costs: real messages, simulated searches")
	stretch := f.Float64("stretch", 5, "with -nodes: searches take so many times as long as measured, so that messages of all nodes do not fill this machine")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case *known:
		m := modelBetween([]float64{0, 0.5, 0.95, 0.99, 0.999, 1}, []float64{1.6, 3.45, 7.6, 9.1, 15.3, 25}, 0.24)
		return table(ctx, stdout, m, *seed)
	case *nodes:
		return severalNodes(ctx, docs, *queries, *k, *passes, *stretch, *seed)
	}
	return run(ctx, docs, *queries, *k, *passes, *seed)
}

func run(ctx context.Context, docs vectors.Files, queries string, k, passes int, seed uint64) (err error) {
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
	measured, err := r.compare(ctx, qs, k, passes)
	if err != nil {
		return err
	}
	fmt.Println(spread(measured))
	return table(ctx, os.Stdout, modelOf(measured), seed)
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
	ends   []func()
	front  *client.Client
	engine *search.Engine
}

func (r *rig) close() {
	for _, end := range slices.Backward(r.ends) {
		end()
	}
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
	r.ends = append(r.ends, s.Close)
	conn, err := s.Connect("measure")
	if err != nil {
		return r, err
	}
	r.ends = append(r.ends, conn.Close)
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
	r.ends = append(r.ends, n.Close)
	op, err := operate.New(ctx, b, store, nil)
	if err != nil {
		return r, err
	}
	r.ends = append(r.ends, op.Close)
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
	r.ends = append(r.ends, func() { _ = r.front.Close() })
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
	r.ends = append(r.ends, func() { _ = ix.Close() })
	if r.engine, err = search.New(ctx, ix, &search.EngineOptions{Threads: 1}); err != nil {
		return r, err
	}
	r.ends = append(r.ends, func() { _ = r.engine.Close() })
	return r, nil
}

// compare asks both in turn, and returns the times of the direct calls.
func (r *rig) compare(ctx context.Context, qs []search.Query, k, passes int) (times, error) {
	measured := make(times, len(qs))
	for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
		var direct, front []float64
		o := search.Options{K: k, Mode: mode}
		for pass := range passes + 1 {
			for i, q := range qs {
				a, b := direct, front
				for turn := range 2 {
					s := search.Searcher(r.engine)
					if (turn+i+pass)%2 == 1 {
						s = r.front
					}
					began := time.Now()
					if _, err := s.Search(ctx, q, o); err != nil {
						return nil, err
					}
					took := milliseconds(time.Since(began))
					if s == search.Searcher(r.engine) {
						a = append(a, took)
						if mode == search.Pruned && pass > 0 {
							measured[i] = append(measured[i], took)
						}
					} else {
						b = append(b, took)
					}
				}
				if pass > 0 { // the first pass warms up
					direct, front = a, b
				}
			}
		}
		d, f := median(direct), median(front)
		fmt.Printf("%v, k = %d: direct %.3f ms, through NATS %.3f ms: %.3f times; least %.3f and %.3f ms\n", mode, k, d, f, f/d, direct[0], front[0])
	}
	return measured, nil
}
