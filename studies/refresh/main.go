// Refresh measures what a writer costs the searches beside it: one client searches
// a copy of an index at a steady pace, first alone, then while documents are added
// at a rate, in turns. It prints latencies as a table in Markdown, which
// docs/lab/benchmarks.md shows.
//
//	go run ./studies/refresh [flags] INDEX VECTORS
//
// VECTORS is a folder with docs.npy, doclens.npy and queries.npy; its documents are
// added under new ids, over and over.
//
// The loop is open: a search that begins late because the one before took long is
// measured from when it should have begun.
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

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/studies/program"
	"github.com/plaid-ir/plaid/vectors"
)

func main() { program.Main("refresh", run) }

type options struct {
	index, vectors string
	k, rate, batch int
	searches       int // a second
	seconds        time.Duration
	rounds         int
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("refresh", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.k, "k", 100, "how many documents to search for")
	f.IntVar(&o.rate, "rate", 100, "documents added a second")
	f.IntVar(&o.batch, "batch", 10, "documents of one addition")
	f.IntVar(&o.searches, "searches", 50, "searches a second")
	f.DurationVar(&o.seconds, "seconds", 10*time.Second, "length of each half of a round")
	f.IntVar(&o.rounds, "rounds", 3, "rounds: alone, then with the writer")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() != 2 || min(o.k, o.rate, o.batch, o.searches, o.rounds) < 1 {
		return o, errors.New("want INDEX and VECTORS, and flags of at least 1")
	}
	o.index, o.vectors = f.Arg(0), f.Arg(1)
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(o.index), "refresh-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "copy.plaid")
	if err := copyFile(path, o.index); err != nil {
		return err
	}
	queries, docs, dim, err := read(ctx, o.vectors)
	if err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Write: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	engine, err := search.New(ctx, ix, &search.EngineOptions{Threads: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	b := &bench{o: o, engine: engine, ix: ix, queries: queries, docs: docs, dim: dim}
	if _, err := b.search(ctx, 2*time.Second); err != nil { // to warm up
		return err
	}
	var alone, beside, commits []time.Duration
	for range o.rounds {
		one, err := b.search(ctx, o.seconds)
		if err != nil {
			return err
		}
		alone = append(alone, one...)
		one, writes, err := b.both(ctx)
		if err != nil {
			return err
		}
		beside, commits = append(beside, one...), append(commits, writes...)
	}
	return table(stdout, o, b.added, alone, beside, commits)
}

type bench struct {
	o       options
	engine  *search.Engine
	ix      *index.Index
	queries []search.Query
	docs    []vectors.Document
	dim     int
	added   int // documents
}

// search answers queries at the pace for a while.
func (b *bench) search(ctx context.Context, d time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	pace := time.Second / time.Duration(b.o.searches)
	start := time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(i) * pace)
		if due.Sub(start) >= d {
			return took, nil
		}
		time.Sleep(time.Until(due))
		if _, err := b.engine.Search(ctx, b.queries[i%len(b.queries)], search.Options{K: b.o.k}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(due))
	}
}

// both searches while documents are added.
func (b *bench) both(ctx context.Context) (took, commits []time.Duration, err error) {
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		var err error
		commits, err = b.write(ctx, stop)
		done <- err
	}()
	took, err = b.search(ctx, b.o.seconds)
	close(stop)
	return took, commits, errors.Join(err, <-done)
}

func (b *bench) write(ctx context.Context, stop <-chan struct{}) (took []time.Duration, err error) {
	pace := time.Duration(b.o.batch) * time.Second / time.Duration(b.o.rate)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return took, nil
		case <-tick.C:
		}
		batch := make([]vectors.Document, b.o.batch)
		for i := range batch {
			batch[i] = vectors.Document{ID: fmt.Sprintf("new %d", b.added), Tokens: b.docs[b.added%len(b.docs)].Tokens}
			b.added++
		}
		src, err := vectors.FromDocuments(b.dim, batch)
		if err != nil {
			return took, err
		}
		start := time.Now()
		if _, err := b.ix.Add(ctx, src, &index.AddOptions{Threads: 1}); err != nil {
			return took, err
		}
		took = append(took, time.Since(start))
	}
}

// read returns all queries, and some thousand documents.
func read(ctx context.Context, dir string) (queries []search.Query, docs []vectors.Document, dim int, err error) {
	q, err := vectors.Open(ctx, vectors.Files{Vectors: filepath.Join(dir, "queries.npy")})
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	for d, err := range q.Docs(ctx, 0, q.Len()) {
		if err != nil {
			return nil, nil, 0, err
		}
		queries = append(queries, search.Query{Vectors: slices.Clone(d.Tokens)})
	}
	src, err := vectors.Open(ctx, vectors.Files{Vectors: filepath.Join(dir, "docs.npy"), Lengths: filepath.Join(dir, "doclens.npy")})
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	for d, err := range src.Docs(ctx, 0, min(src.Len(), 3000)) {
		if err != nil {
			return nil, nil, 0, err
		}
		docs = append(docs, vectors.Document{Tokens: slices.Clone(d.Tokens)})
	}
	return queries, docs, src.Dim(), nil
}

func copyFile(dst, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func table(w io.Writer, o options, added int, alone, beside, commits []time.Duration) error {
	row := func(name string, took []time.Duration) {
		slices.Sort(took)
		at := func(p float64) float64 {
			if len(took) == 0 {
				return 0
			}
			return float64(took[min(int(p*float64(len(took))), len(took)-1)]) / 1e6
		}
		fmt.Fprintf(w, "| %s | %d | %.2f | %.2f | %.2f | %.2f |\n", name, len(took), at(0.5), at(0.95), at(0.99), at(1))
	}
	fmt.Fprintf(w, "k = %d, %d searches a second on one thread, %d documents a second in additions of %d, %d added, %d rounds of 2 × %v\n\n",
		o.k, o.searches, o.rate, o.batch, added, o.rounds, o.seconds)
	fmt.Fprint(w, "| | calls | p50 ms | p95 ms | p99 ms | most ms |\n|---|--:|--:|--:|--:|--:|\n")
	row("searches alone", alone)
	row("searches beside the writer", beside)
	row("additions", commits)
	return nil
}
