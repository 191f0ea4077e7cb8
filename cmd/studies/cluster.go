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

// clusterOptions are the options of the study of clusters. All nodes run in this process, send HTTP
// over the loopback interface, and share one object store. Documents are random vectors around
// topics.
type clusterOptions struct {
	address, dir string
	dim          int
	// period is the length of each measurement.
	period  time.Duration
	writers []int
	// docs and tokens are the sizes of the search over shards.
	docs, tokens int
	// threads is the number of threads of one search, of a shard or of a file.
	threads int
	// coldMiB is the size of the shard of the first search.
	coldMiB    float64
	idleShards int
	out, log   io.Writer
	store      *countingStore
}

// clusterStudy registers the flags of the study of clusters.
func clusterStudy(f *flag.FlagSet) measureFunc {
	o := &clusterOptions{}
	partNames := f.String("parts", "put,changes,search,cold,idle", "parts of the study to run")
	f.StringVar(&o.dir, "dir", "", "folder for caches and files (\"\": a temporary one)")
	f.IntVar(&o.dim, "dim", 96, "dimension of the vectors")
	f.DurationVar(&o.period, "time", 10*time.Second, "length of each measurement")
	writers := numbers(f, "writers", 1, "writers at a time", 1, 64, 256)
	f.IntVar(&o.docs, "docs", 100_000, "documents of the search over shards")
	f.IntVar(&o.tokens, "tokens", 32, "tokens of each document")
	f.IntVar(&o.threads, "threads", 1, "threads of the search of one shard, and of one file")
	f.Float64Var(&o.coldMiB, "cold", 1024, "MiB of the shard that is searched cold")
	f.IntVar(&o.idleShards, "idle", 1600, "idle shards, with two replicas each")
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
		inner, err := objects.Open(o.address)
		if err != nil {
			return err
		}
		o.store = &countingStore{Store: inner}
		fmt.Fprintf(stdout, "| %s | |\n| --- | --- |\n", o.address)
		for _, part := range []struct {
			name    string
			measure func(context.Context)
		}{{"put", o.measurePuts}, {"changes", o.measureChanges}, {"search", o.measureSearches},
			{"cold", o.measureColdSearch}, {"idle", o.measureIdle}} {
			if !slices.Contains(strings.Split(*partNames, ","), part.name) {
				continue
			}
			if failed := recoverFailure(func() { part.measure(ctx) }); failed != nil { // go on with the other parts
				err = errors.Join(err, fmt.Errorf("%s: %w", part.name, failed))
			}
		}
		return err
	}
}

// printRow writes a row of the table.
func (o *clusterOptions) printRow(name, format string, args ...any) {
	fmt.Fprintf(o.out, "| %s | %s |\n", name, fmt.Sprintf(format, args...))
}

// failure is a panic that ends a part of the study.
type failure struct{ error }

// panicOn ends the current part of the study if there is an error.
func panicOn(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns v, or ends the current part of the study if there is an error.
func must[T any](v T, err error) T {
	panicOn(err)
	return v
}

// recoverFailure runs a part of the study and returns the error that has ended it.
func recoverFailure(part func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	part()
	return nil
}

// measureRequests lets clients send requests for a period, after a few requests to warm up.
func (o *clusterOptions) measureRequests(ctx context.Context, clients int, request func(i int) error) *tally {
	send := func(i int) (wrong string) {
		if err := request(i); err != nil {
			wrong = err.Error()
		}
		return wrong
	}
	for i := range 8 {
		panicOn(request(1<<30 + i)) // numbers that the measurement does not reach
	}
	t := closedLoop(ctx, slices.Repeat([]sendFunc{send}, clients), o.period)
	for wrong := range t.faults {
		panicOn(errors.New(wrong))
	}
	panicOn(ctx.Err())
	return t
}

// String formats the rate and the latencies.
func (t *tally) String() string {
	return fmt.Sprintf("%.0f/s, p50 %.2f ms, p99 %.2f ms", t.perSecond(), t.quantile(.5), t.quantile(.99))
}

// measurePuts measures the store without a cluster.
func (o *clusterOptions) measurePuts(ctx context.Context) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 600) // about the size of a document
	for _, n := range o.writers {
		runID := time.Now().UnixNano()
		t := o.measureRequests(ctx, n, func(i int) error {
			_, err := o.store.Put(ctx, fmt.Sprintf("puts/%x/%d", runID, i), bytes.NewReader(body), int64(len(body)))
			return err
		})
		o.printRow(fmt.Sprintf("puts of the store by itself, %d at a time", n), "%v", t)
	}
}

// measureChanges measures single changes through all nodes, each acknowledged.
func (o *clusterOptions) measureChanges(ctx context.Context) {
	nodes := o.startNodes(ctx, "changes", 4, 4, 2)
	defer nodes.close()
	folder := must(store.Open(ctx, filepath.Join(o.dir, "plain"), &store.Options{}))
	defer folder.Close(context.WithoutCancel(ctx))
	for i, catalogs := range [][]collection.Catalog{{folder.Catalog()}, nodes.catalogs()} {
		kind := []string{"a folder of files, on this disk", "4 shards × 2 on 4 nodes"}[i]
		name := fmt.Sprintf("changes-%x", time.Now().UnixNano())
		must(catalogs[0].Create(ctx, name, collection.Config{}))
		var collections []collection.Collection
		for _, catalog := range catalogs {
			collections = append(collections, awaitCollection(ctx, catalog, name))
		}
		for _, n := range o.writers {
			putsBefore := o.store.puts.Load()
			t := o.measureRequests(ctx, n, func(i int) error {
				docs := []collection.DocumentInput{o.document(uint64(i), 4)}
				_, err := collections[i%len(collections)].Update(ctx, docs, collection.UpdateOptions{Replace: true})
				return err
			})
			o.printRow(fmt.Sprintf("single changes, %d writers, %s", n, kind), "%v, %.1f changes a put", t,
				float64(len(t.durations))/max(1, float64(o.store.puts.Load()-putsBefore)))
		}
	}
}

// measureSearches measures searches of one file, of shards, and of shards while a node hangs.
func (o *clusterOptions) measureSearches(ctx context.Context) {
	file := o.buildIndexFile(ctx, "search.plaid", o.docs)
	folder := must(store.Open(ctx, filepath.Join(o.dir, "folder"), &store.Options{Threads: o.threads}))
	defer folder.Close(context.WithoutCancel(ctx))
	nodes := o.startNodes(ctx, "search", 4, 4, 2)
	defer nodes.close()
	name := fmt.Sprintf("search-%x", time.Now().UnixNano())
	restore(ctx, folder, name, file)
	restore(ctx, nodes.nodes[0], name, file)
	single, sharded := awaitCollection(ctx, folder.Catalog(), name), awaitCollection(ctx, nodes.nodes[0].Cluster, name)
	nodes.awaitReplicas(ctx, name)
	for _, mode := range []search.Mode{search.Pruned, search.Exhaustive} {
		modeName, p99 := []string{"pruned", "exhaustive"}[mode], 0.
		for _, clients := range []int{16, 1} {
			fromFile := o.measureRequests(ctx, clients, o.searchRequest(ctx, single, mode))
			fromShards := o.measureRequests(ctx, clients, o.searchRequest(ctx, sharded, mode))
			o.printRow(fmt.Sprintf("%d at a time, %s, one file of %d documents", clients, modeName, o.docs), "%v",
				fromFile)
			o.printRow(fmt.Sprintf("%d at a time, %s, 4 shards on 4 nodes", clients, modeName), "%v: %.2f × as fast",
				fromShards, fromFile.quantile(.5)/fromShards.quantile(.5))
			p99 = fromShards.quantile(.99)
		}
		nodes.nodes[1].handler.hung.Store(true)
		hung := o.measureRequests(ctx, 1, o.searchRequest(ctx, sharded, mode))
		nodes.nodes[1].handler.hung.Store(false)
		o.printRow("the same with a node that hangs", "%v: p99 %.2f ×", hung, hung.quantile(.99)/p99)
	}
}

// searchRequest returns a function that sends one search.
func (o *clusterOptions) searchRequest(ctx context.Context, c collection.Collection,
	mode search.Mode) func(i int) error {
	return func(i int) error {
		v, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		const notStored = 1 << 20 // numbers from here on are of no document of the index
		q := search.Query{Vectors: o.document(uint64(i+notStored), 32).Vectors, Dim: o.dim}
		_, err = v.Search(ctx, []search.Query{q}, search.Options{K: 10, Mode: mode, Payload: true})
		return errors.Join(err, v.Close())
	}
}

// measureColdSearch measures the first search of a shard that exists only in the store.
func (o *clusterOptions) measureColdSearch(ctx context.Context) {
	bytesPerToken := o.dim/2 + 8 // 4 bits a component; code, factor and posting take about 8 bytes
	file := o.buildIndexFile(ctx, "cold.plaid", int(o.coldMiB*(1<<20))/(o.tokens*bytesPerToken))
	name := fmt.Sprintf("cold-%x", time.Now().UnixNano())
	nodes := o.startNodes(ctx, "cold", 1, 1, 1)
	err := recoverFailure(func() { restore(ctx, nodes.nodes[0], name, file) })
	nodes.close()
	panicOn(errors.Join(err, os.RemoveAll(filepath.Join(o.dir, "cold"))))
	start := time.Now()
	nodes = o.startNodes(ctx, "cold", 1, 1, 1)
	defer nodes.close()
	opened := time.Since(start)
	request := o.searchRequest(ctx, awaitCollection(ctx, nodes.nodes[0].Cluster, name), search.Pruned)
	bytesBefore := o.store.bytesRead.Load()
	start = time.Now()
	panicOn(request(1))
	first, bytesRead := time.Since(start), o.store.bytesRead.Load()-bytesBefore
	nodes.awaitReplicas(ctx, name)
	complete := time.Since(start)
	o.printRow(fmt.Sprintf("first search of a shard of about %.0f MiB that is only in the store", o.coldMiB),
		"%.2f s (a node starts in %.2f s; %d MiB are read by then); its file is here after %.2f s; then %v",
		first.Seconds(), opened.Seconds(), bytesRead>>20, complete.Seconds(), o.measureRequests(ctx, 1, request))
}

// measureIdle counts the requests that nodes send to the store while nothing happens.
func (o *clusterOptions) measureIdle(ctx context.Context) {
	const shardsPerIndex = 16
	nodes := o.startNodes(ctx, "idle", 8, shardsPerIndex, 2)
	defer nodes.close()
	var docs []collection.DocumentInput
	for i := range 4 * shardsPerIndex {
		docs = append(docs, o.document(uint64(i), 1))
	}
	runID, indexCount := time.Now().UnixNano(), max(o.idleShards/shardsPerIndex, 1)
	for n := range indexCount {
		c := must(nodes.nodes[n%8].Create(ctx, fmt.Sprintf("idle-%x-%d", runID, n), collection.Config{}))
		must(c.Update(ctx, docs, collection.UpdateOptions{}))
	}
	pauseFor(ctx, 2*o.period) // until all replicas are open
	requestsBefore, start := o.store.requests(), time.Now()
	pauseFor(ctx, 3*o.period)
	o.printRow(fmt.Sprintf("requests to the store, %d shards × 2 on 8 nodes, idle", indexCount*shardsPerIndex),
		"%.1f/s",
		float64(o.store.requests()-requestsBefore)/time.Since(start).Seconds())
}

// buildIndexFile builds an index file of random documents, unless it exists.
func (o *clusterOptions) buildIndexFile(ctx context.Context, name string, docs int) (file string) {
	file = filepath.Join(o.dir, name)
	if _, err := os.Stat(file); err != nil {
		r := must(index.Build(ctx, file, &randomDocuments{o, docs}, &index.BuildOptions{Nbits: 4, Seed: 1}))
		fmt.Fprintf(o.log, "%s: %d documents, %d tokens\n", file, r.Docs, r.Tokens)
	}
	return file
}

// restore creates a collection from an index file.
func restore(ctx context.Context, to collection.Restorer, name, file string) {
	f := must(os.Open(file))
	panicOn(errors.Join(to.Restore(ctx, name, f), f.Close()))
}
