package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	parts        []string
	dim          int
	seconds      time.Duration // of each measurement
	writers      []int
	docs, tokens int // of the search over shards
	searches     int
	threads      int   // of one search of one shard, and of one file
	cold         int64 // bytes of the shard that is searched cold
	idleShards   int
	log          io.Writer
	rows         [][2]string
	store        *counting
}

func clusterStudy(f *flag.FlagSet) measuring {
	o := &clusterOptions{}
	parts := f.String("parts", "put,changes,search,cold,idle", "what is measured")
	f.StringVar(&o.dir, "dir", "", "folder for caches and files (\"\": a temporary one)")
	f.IntVar(&o.dim, "dim", 96, "of the vectors")
	f.DurationVar(&o.seconds, "time", 10*time.Second, "of each measurement")
	writers := numbers(f, "writers", 1, "writers at a time", 1, 64, 256)
	f.IntVar(&o.docs, "docs", 100_000, "documents of the search over shards")
	f.IntVar(&o.tokens, "tokens", 32, "of each document")
	f.IntVar(&o.searches, "searches", 400, "of each kind")
	f.IntVar(&o.threads, "threads", 1, "of the search of one shard, and of one file")
	cold := f.Float64("cold", 1024, "MiB of the shard that is searched cold")
	f.IntVar(&o.idleShards, "idle", 1600, "shards, with two replicas each, that wait for nothing")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		o.address, o.log, o.writers, o.parts, o.cold = args[0], stderr, *writers, strings.Split(*parts, ","), int64(*cold*(1<<20))
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
		for _, part := range []struct {
			name    string
			measure func(context.Context) error
		}{{"put", o.puts}, {"changes", o.changes}, {"search", o.search}, {"cold", o.coldSearch}, {"idle", o.idle}} {
			if !slices.Contains(o.parts, part.name) {
				continue
			}
			if failed := part.measure(ctx); failed != nil { // the rest is measured, and the table printed
				err = errors.Join(err, fmt.Errorf("%s: %w", part.name, failed))
			}
		}
		fmt.Fprintf(stdout, "| %s | |\n| --- | --- |\n", o.address)
		for _, row := range o.rows {
			fmt.Fprintf(stdout, "| %s | %s |\n", row[0], row[1])
		}
		return err
	}
}

func (o *clusterOptions) row(name, format string, args ...any) {
	o.rows = append(o.rows, [2]string{name, fmt.Sprintf(format, args...)})
	fmt.Fprintf(o.log, "%s: %s\n", name, o.rows[len(o.rows)-1][1])
}

// durations are times of requests.
type durations []time.Duration

func (d durations) at(share float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(share*float64(len(d))), len(d)-1)]
}

func (d durations) String() string {
	short := func(t time.Duration) string { return fmt.Sprintf("%.2f ms", t.Seconds()*1000) }
	return fmt.Sprintf("p50 %s, p99 %s", short(d.at(.5)), short(d.at(.99)))
}

// repeat does something for some time, several at a time, and returns how long each took.
func repeat(ctx context.Context, most time.Duration, workers int, do func(ctx context.Context, worker, i int) error) (all durations, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(most)
	for w := range workers {
		wg.Go(func() {
			for i := 0; time.Now().Before(end) && ctx.Err() == nil; i++ {
				start := time.Now()
				failed := do(ctx, w, i)
				took := time.Since(start)
				mu.Lock()
				all = append(all, took)
				err = errors.Join(err, failed)
				mu.Unlock()
				if failed != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return all, errors.Join(err, ctx.Err())
}

// puts measures the store by itself.
func (o *clusterOptions) puts(ctx context.Context) error {
	body := bytes.Repeat([]byte("0123456789abcdef"), 600) // about a document
	run := time.Now().UnixNano()
	for _, n := range o.writers {
		all, err := repeat(ctx, o.seconds, n, func(ctx context.Context, w, i int) error {
			_, err := o.store.Put(ctx, fmt.Sprintf("puts/%x/%d/%d/%d", run, n, w, i), bytes.NewReader(body), int64(len(body)))
			return err
		})
		if err != nil {
			return err
		}
		o.row(fmt.Sprintf("puts of the store by itself, %d at a time", n), "%.0f/s, %v", float64(len(all))/o.seconds.Seconds(), all)
	}
	return nil
}

// changes measures single changes, each acknowledged, through all nodes.
func (o *clusterOptions) changes(ctx context.Context) (err error) {
	nodes, err := o.nodes(ctx, "changes", 4, 4, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.close()) }()
	plain, err := store.Open(ctx, filepath.Join(o.dir, "plain"), &store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Close(context.WithoutCancel(ctx))) }()
	var sets []collection.Set
	for _, n := range nodes.all {
		sets = append(sets, n.Cluster)
	}
	for i, sets := range [][]collection.Set{{plain.Set()}, sets} {
		kind := []string{"a folder of files, on this disk", "4 shards × 2 on 4 nodes"}[i]
		name := fmt.Sprintf("changes-%x", time.Now().UnixNano())
		if _, err := sets[0].Declare(ctx, name, collection.Config{}); err != nil {
			return err
		}
		all := make([]collection.Collection, len(sets))
		for i := range all {
			if all[i], err = handle(ctx, sets[i], name); err != nil {
				return err
			}
		}
		change := func(ctx context.Context, w, i int) error {
			d := o.document(uint64(w)<<32|uint64(i), 4)
			_, err := all[w%len(all)].Update(ctx, []collection.Document{d}, collection.UpdateOptions{Replace: true})
			return err
		}
		for w := range 8 { // it has begun
			if err := change(ctx, w, 1<<30); err != nil {
				return err
			}
		}
		for _, n := range o.writers {
			before := o.store.puts.Load()
			took, err := repeat(ctx, o.seconds, n, change)
			if err != nil {
				return err
			}
			o.row(fmt.Sprintf("single changes, %d writers, %s", n, kind), "%.0f/s, %v, %.1f changes a put", float64(len(took))/o.seconds.Seconds(), took,
				float64(len(took))/max(1, float64(o.store.puts.Load()-before)))
		}
	}
	return nil
}

// search measures searches of shards beside those of one file, and beside a node that hangs.
func (o *clusterOptions) search(ctx context.Context) (err error) {
	file := filepath.Join(o.dir, "search.plaid")
	if err := o.build(ctx, file, o.docs); err != nil {
		return err
	}
	ix, err := index.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	over, err := store.Over(ctx, map[string]store.Opened{"search": {Index: ix}}, &store.Options{Threads: o.threads})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, over.Close(context.WithoutCancel(ctx))) }()
	nodes, err := o.nodes(ctx, "search", 4, 4, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.close()) }()
	name := fmt.Sprintf("search-%x", time.Now().UnixNano())
	if err := restore(ctx, nodes.all[0].Cluster, name, file); err != nil {
		return err
	}
	one, err := handle(ctx, over.Set(), "search")
	if err != nil {
		return err
	}
	four, err := handle(ctx, nodes.all[0].Cluster, name)
	if err != nil {
		return err
	}
	if err := nodes.ready(ctx, name); err != nil {
		return err
	}
	for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
		n := o.searches
		called := "pruned"
		if mode == search.Exhaustive {
			called = "exhaustive"
		}
		file, err := o.ask(ctx, one, mode, n)
		if err != nil {
			return err
		}
		shards, err := o.ask(ctx, four, mode, n)
		if err != nil {
			return err
		}
		o.row(fmt.Sprintf("search of %d documents, %s, one file", o.docs, called), "%v", file)
		o.row(fmt.Sprintf("the same over 4 shards on 4 nodes, %s", called), "%v: %.2f × as fast", shards, float64(file.at(.5))/float64(shards.at(.5)))
		for _, of := range []struct {
			name string
			collection.Collection
		}{{"one file", one}, {"4 shards on 4 nodes", four}} {
			took, err := repeat(ctx, o.seconds, 16, func(ctx context.Context, w, i int) error {
				return o.one(ctx, of, mode, w<<16+i)
			})
			if err != nil {
				return err
			}
			o.row(fmt.Sprintf("16 at a time, %s, %s", called, of.name), "%.0f/s, %v",
				float64(len(took))/o.seconds.Seconds(), took)
		}
		nodes.all[1].door.hung.Store(true)
		hung, err := o.ask(ctx, four, mode, n)
		nodes.all[1].door.hung.Store(false)
		if err != nil {
			return err
		}
		o.row("the same with a node that hangs", "%v: p99 %.2f ×", hung, float64(hung.at(.99))/float64(shards.at(.99)))
	}
	return nil
}

// ask searches n times, one after another, a few times before to warm up.
func (o *clusterOptions) ask(ctx context.Context, c collection.Collection, mode search.Mode, n int) (took durations, err error) {
	for i := -5; i < n; i++ {
		start := time.Now()
		if err := o.one(ctx, c, mode, i); err != nil {
			return nil, err
		}
		if i >= 0 {
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}

func (o *clusterOptions) one(ctx context.Context, c collection.Collection, mode search.Mode, i int) error {
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	q := search.Query{Vectors: o.document(uint64(i+1<<20), 32).Vectors, Dim: o.dim}
	_, err = v.Search(ctx, []search.Query{q}, search.Options{K: 10, Mode: mode, Payload: true})
	return errors.Join(err, v.Close())
}

// coldSearch measures the first search of a shard that is nowhere but in the store.
func (o *clusterOptions) coldSearch(ctx context.Context) (err error) {
	file := filepath.Join(o.dir, "cold.plaid")
	docs := int(o.cold / int64(o.tokens*(o.dim/2+8)))
	if err := o.build(ctx, file, docs); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	nodes, err := o.nodes(ctx, "cold", 1, 1, 1)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("cold-%x", time.Now().UnixNano())
	err = restore(ctx, nodes.all[0].Cluster, name, file)
	if err = errors.Join(err, nodes.close(), os.RemoveAll(filepath.Join(o.dir, "cold"))); err != nil {
		return err
	}
	start := time.Now()
	if nodes, err = o.nodes(ctx, "cold", 1, 1, 1); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.close()) }()
	opened := time.Since(start)
	c, err := handle(ctx, nodes.all[0].Cluster, name)
	if err != nil {
		return err
	}
	start = time.Now()
	before := o.store.read.Load()
	if err := o.one(ctx, c, search.Pruned, 1); err != nil {
		return err
	}
	first, read := time.Since(start), o.store.read.Load()-before
	if err := nodes.ready(ctx, name); err != nil {
		return err
	}
	whole := time.Since(start)
	warm, err := o.ask(ctx, c, search.Pruned, max(o.searches/10, 5))
	if err != nil {
		return err
	}
	o.row(fmt.Sprintf("first search of a shard of %d MiB that is only in the store", info.Size()>>20),
		"%.2f s (a node starts in %.2f s; %d MiB are read by then); its file is here after %.2f s; then %v", first.Seconds(), opened.Seconds(), read>>20, whole.Seconds(), warm)
	return nil
}

// idle measures what nodes ask the store while nothing happens.
func (o *clusterOptions) idle(ctx context.Context) (err error) {
	const each = 16
	nodes, err := o.nodes(ctx, "idle", 8, each, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.close()) }()
	run := time.Now().UnixNano()
	many := max(o.idleShards/each, 1)
	for n := range many {
		c, err := nodes.all[n%8].Declare(ctx, fmt.Sprintf("idle-%x-%d", run, n), collection.Config{})
		if err != nil {
			return err
		}
		var docs []collection.Document
		for i := range 4 * each {
			docs = append(docs, o.document(uint64(i), 1))
		}
		if _, err = c.Update(ctx, docs, collection.UpdateOptions{}); err != nil {
			return err
		}
	}
	if err := pauseFor(ctx, 2*o.seconds); err != nil { // replicas are opened everywhere
		return err
	}
	before, start := o.store.asked(), time.Now()
	if err := pauseFor(ctx, 3*o.seconds); err != nil {
		return err
	}
	spent := o.store.asked() - before
	o.row(fmt.Sprintf("requests to the store, %d shards × 2 on 8 nodes, idle", many*each), "%.1f/s", float64(spent)/time.Since(start).Seconds())
	return nil
}

// build makes an index file of random documents.
func (o *clusterOptions) build(ctx context.Context, file string, docs int) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	start := time.Now()
	r, err := index.Build(ctx, file, &drawn{o, docs}, &index.BuildOptions{Nbits: 4, Seed: 1})
	if err == nil {
		fmt.Fprintf(o.log, "%s: %d documents, %d tokens in %v\n", file, r.Docs, r.Tokens, time.Since(start).Round(time.Second))
	}
	return err
}

func restore(ctx context.Context, set collection.Restorer, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(set.Restore(ctx, name, f), f.Close())
}

// document is the n-th of all documents, which is always the same.
func (o *clusterOptions) document(n uint64, tokens int) collection.Document {
	r := rand.New(rand.NewPCG(n, 7))
	v := make([]float32, 0, tokens*o.dim)
	topic := make([]float64, o.dim)
	for t := range tokens {
		if t%8 == 0 { // near one of 4,096 points
			of := rand.New(rand.NewPCG(uint64(r.IntN(4096)), 8))
			for j := range topic {
				topic[j] = of.NormFloat64()
			}
		}
		for j := range o.dim {
			v = append(v, float32(topic[j]+.5*r.NormFloat64()))
		}
	}
	return collection.Document{ID: fmt.Sprintf("d%d", n), Vectors: v, Dim: o.dim, Metadata: fmt.Appendf(nil, `{"n":%d}`, n%1000)}
}
