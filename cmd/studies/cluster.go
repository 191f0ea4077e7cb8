package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage/objects"
)

// clusterOptions are those of the study of clusters: all nodes run in this process, talk HTTP over
// the loopback, and share one object store. Documents are drawn at random around topics.
type clusterOptions struct {
	address, dir string
	dim          int
	slice        time.Duration // of each measurement
	writers      []int
	docs, tokens int     // of the search over shards
	threads      int     // of one search of one shard, and of one file
	cold         float64 // MiB of the shard that is searched cold
	idleShards   int
	out, log     io.Writer
	store        *counting
}

func clusterStudy(f *flag.FlagSet) measuring {
	o := &clusterOptions{}
	parts := f.String("parts", "put,changes,search,cold,idle", "what is measured")
	f.StringVar(&o.dir, "dir", "", "folder for caches and files (\"\": a temporary one)")
	f.IntVar(&o.dim, "dim", 96, "of the vectors")
	f.DurationVar(&o.slice, "time", 10*time.Second, "of each measurement")
	writers := numbers(f, "writers", 1, "writers at a time", 1, 64, 256)
	f.IntVar(&o.docs, "docs", 100_000, "documents of the search over shards")
	f.IntVar(&o.tokens, "tokens", 32, "of each document")
	f.IntVar(&o.threads, "threads", 1, "of the search of one shard, and of one file")
	f.Float64Var(&o.cold, "cold", 1024, "MiB of the shard that is searched cold")
	f.IntVar(&o.idleShards, "idle", 1600, "shards, with two replicas each, that wait for nothing")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		o.address, o.out, o.log, o.writers = args[0], stdout, stderr, *writers
		if o.dir == "" {
			if o.dir, err = os.MkdirTemp("", "plaid-cluster-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
		} else if err := os.MkdirAll(o.dir, 0o777); err != nil {
			return err
		}
		under, err := objects.Open(o.address)
		if err != nil {
			return err
		}
		o.store = &counting{Store: under}
		fmt.Fprintf(stdout, "| %s | |\n| --- | --- |\n", o.address)
		for _, part := range []struct {
			name    string
			measure func(context.Context)
		}{{"put", o.puts}, {"changes", o.changes}, {"search", o.search}, {"cold", o.coldSearch}, {"idle", o.idle}} {
			if !slices.Contains(strings.Split(*parts, ","), part.name) {
				continue
			}
			if failed := caught(func() { part.measure(ctx) }); failed != nil { // the rest is measured
				err = errors.Join(err, fmt.Errorf("%s: %w", part.name, failed))
			}
		}
		return err
	}
}

func (o *clusterOptions) row(name, format string, args ...any) {
	fmt.Fprintf(o.out, "| %s | %s |\n", name, fmt.Sprintf(format, args...))
}

// failure is a panic that ends a part of the study.
type failure struct{ error }

// check ends a part if there is an error, and must is check for who wants a value.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// caught is the error that has ended do.
func caught(do func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	do()
	return nil
}

// timed lets clients put requests for a while, after some to warm up.
func (o *clusterOptions) timed(ctx context.Context, clients int, request func(i int) error) *tally {
	put := func(i int) (wrong string) {
		if err := request(i); err != nil {
			wrong = err.Error()
		}
		return wrong
	}
	for i := range 8 {
		check(request(1<<30 + i))
	}
	t := closed(ctx, slices.Repeat([]ask{put}, clients), o.slice)
	for wrong := range t.wrong {
		check(errors.New(wrong))
	}
	check(ctx.Err())
	return t
}

func (t *tally) String() string {
	return fmt.Sprintf("%.0f/s, p50 %.2f ms, p99 %.2f ms", t.rate(), t.quantile(.5), t.quantile(.99))
}

// puts measures the store by itself.
func (o *clusterOptions) puts(ctx context.Context) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 600) // about a document
	for _, n := range o.writers {
		run := time.Now().UnixNano()
		t := o.timed(ctx, n, func(i int) error {
			_, err := o.store.Put(ctx, fmt.Sprintf("puts/%x/%d", run, i), bytes.NewReader(body), int64(len(body)))
			return err
		})
		o.row(fmt.Sprintf("puts of the store by itself, %d at a time", n), "%v", t)
	}
}

// changes measures single changes, each acknowledged, through all nodes.
func (o *clusterOptions) changes(ctx context.Context) {
	nodes := o.nodes(ctx, "changes", 4, 4, 2)
	defer nodes.close()
	folder := must(store.Open(ctx, filepath.Join(o.dir, "plain"), &store.Options{}))
	defer folder.Close(context.WithoutCancel(ctx))
	for i, sets := range [][]collection.Catalog{{folder.Set()}, nodes.sets()} {
		kind := []string{"a folder of files, on this disk", "4 shards × 2 on 4 nodes"}[i]
		name := fmt.Sprintf("changes-%x", time.Now().UnixNano())
		must(sets[0].Declare(ctx, name, collection.Config{}))
		var all []collection.Collection
		for _, set := range sets {
			all = append(all, handle(ctx, set, name))
		}
		for _, n := range o.writers {
			before := o.store.puts.Load()
			t := o.timed(ctx, n, func(i int) error {
				docs := []collection.DocumentInput{o.document(uint64(i), 4)}
				_, err := all[i%len(all)].Update(ctx, docs, collection.UpdateOptions{Replace: true})
				return err
			})
			o.row(fmt.Sprintf("single changes, %d writers, %s", n, kind), "%v, %.1f changes a put", t,
				float64(len(t.took))/max(1, float64(o.store.puts.Load()-before)))
		}
	}
}

// search measures searches of shards, of one file, and of shards while a node hangs.
func (o *clusterOptions) search(ctx context.Context) {
	file := o.build(ctx, "search.plaid", o.docs)
	folder := must(store.Open(ctx, filepath.Join(o.dir, "folder"), &store.Options{Threads: o.threads}))
	defer folder.Close(context.WithoutCancel(ctx))
	nodes := o.nodes(ctx, "search", 4, 4, 2)
	defer nodes.close()
	name := fmt.Sprintf("search-%x", time.Now().UnixNano())
	restore(ctx, folder, name, file)
	restore(ctx, nodes.all[0], name, file)
	one, four := handle(ctx, folder.Set(), name), handle(ctx, nodes.all[0].Cluster, name)
	nodes.ready(ctx, name)
	for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
		called, p99 := []string{"pruned", "exhaustive"}[mode], 0.
		for _, clients := range []int{16, 1} {
			file := o.timed(ctx, clients, o.searching(ctx, one, mode))
			shards := o.timed(ctx, clients, o.searching(ctx, four, mode))
			o.row(fmt.Sprintf("%d at a time, %s, one file of %d documents", clients, called, o.docs), "%v", file)
			o.row(fmt.Sprintf("%d at a time, %s, 4 shards on 4 nodes", clients, called), "%v: %.2f × as fast", shards,
				file.quantile(.5)/shards.quantile(.5))
			p99 = shards.quantile(.99)
		}
		nodes.all[1].door.hung.Store(true)
		hung := o.timed(ctx, 1, o.searching(ctx, four, mode))
		nodes.all[1].door.hung.Store(false)
		o.row("the same with a node that hangs", "%v: p99 %.2f ×", hung, hung.quantile(.99)/p99)
	}
}

// searching puts one search.
func (o *clusterOptions) searching(ctx context.Context, c collection.Collection, mode search.Mode) func(i int) error {
	return func(i int) error {
		v, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		q := search.Query{Vectors: o.document(uint64(i+1<<20), 32).Vectors, Dim: o.dim}
		_, err = v.Search(ctx, []search.Query{q}, search.Options{K: 10, Mode: mode, Payload: true})
		return errors.Join(err, v.Close())
	}
}

// coldSearch measures the first search of a shard that is nowhere but in the store.
func (o *clusterOptions) coldSearch(ctx context.Context) {
	file := o.build(ctx, "cold.plaid", int(o.cold*(1<<20))/(o.tokens*(o.dim/2+8)))
	name := fmt.Sprintf("cold-%x", time.Now().UnixNano())
	nodes := o.nodes(ctx, "cold", 1, 1, 1)
	err := caught(func() { restore(ctx, nodes.all[0], name, file) })
	nodes.close()
	check(errors.Join(err, os.RemoveAll(filepath.Join(o.dir, "cold"))))
	start := time.Now()
	nodes = o.nodes(ctx, "cold", 1, 1, 1)
	defer nodes.close()
	opened := time.Since(start)
	request := o.searching(ctx, handle(ctx, nodes.all[0].Cluster, name), search.Pruned)
	before := o.store.read.Load()
	start = time.Now()
	check(request(1))
	first, read := time.Since(start), o.store.read.Load()-before
	nodes.ready(ctx, name)
	whole := time.Since(start)
	o.row(fmt.Sprintf("first search of a shard of about %.0f MiB that is only in the store", o.cold),
		"%.2f s (a node starts in %.2f s; %d MiB are read by then); its file is here after %.2f s; then %v",
		first.Seconds(), opened.Seconds(), read>>20, whole.Seconds(), o.timed(ctx, 1, request))
}

// idle measures what nodes ask the store while nothing happens.
func (o *clusterOptions) idle(ctx context.Context) {
	const each = 16
	nodes := o.nodes(ctx, "idle", 8, each, 2)
	defer nodes.close()
	var docs []collection.DocumentInput
	for i := range 4 * each {
		docs = append(docs, o.document(uint64(i), 1))
	}
	run, many := time.Now().UnixNano(), max(o.idleShards/each, 1)
	for n := range many {
		c := must(nodes.all[n%8].Declare(ctx, fmt.Sprintf("idle-%x-%d", run, n), collection.Config{}))
		must(c.Update(ctx, docs, collection.UpdateOptions{}))
	}
	pauseFor(ctx, 2*o.slice) // replicas are opened everywhere
	before, start := o.store.asked(), time.Now()
	pauseFor(ctx, 3*o.slice)
	o.row(fmt.Sprintf("requests to the store, %d shards × 2 on 8 nodes, idle", many*each), "%.1f/s",
		float64(o.store.asked()-before)/time.Since(start).Seconds())
}

// build makes an index file of random documents, if it is not there.
func (o *clusterOptions) build(ctx context.Context, name string, docs int) (file string) {
	file = filepath.Join(o.dir, name)
	if _, err := os.Stat(file); err != nil {
		r := must(index.Build(ctx, file, &drawn{o, docs}, &index.BuildOptions{Nbits: 4, Seed: 1}))
		fmt.Fprintf(o.log, "%s: %d documents, %d tokens\n", file, r.Docs, r.Tokens)
	}
	return file
}

func restore(ctx context.Context, to collection.Restorer, name, file string) {
	f := must(os.Open(file))
	check(errors.Join(to.Restore(ctx, name, f), f.Close()))
}
