// Grown compares collections that grew from nothing, by a few documents at a time, with
// indexes of the same documents that were built at once: what they find, how large they
// are, and what the growing cost. It prints a table in Markdown; docs/service.md shows
// it.
//
//	go run ./studies/grown [flags] COLLECTION VECTORS
//
// COLLECTION is a folder in BEIR's layout, of which the judgements are read, VECTORS has
// docs.npy, doclens.npy, doc_ids.txt and the same of queries.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server/store"
	"github.com/plaid-ir/plaid/studies/program"
	"github.com/plaid-ir/plaid/vectors"
)

func main() { program.Main("grown", run) }

type options struct {
	collection, vectors string
	dir                 string
	until               []int64
	flat                int64
	nbits, batch        int
	seed                uint64
	exclude, settle     bool
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("grown", flag.ContinueOnError)
	f.SetOutput(stderr)
	until := f.String("until", "0", "sizes in tokens up to which a collection is kept precisely, separated by commas (0: the default)")
	f.Int64Var(&o.flat, "flat", 0, "tokens up to which nothing is trained (0: the default)")
	f.StringVar(&o.dir, "dir", "", "folder for the indexes (empty: a temporary one)")
	f.IntVar(&o.nbits, "nbits", 4, "residual bits a component in the end")
	f.IntVar(&o.batch, "batch", 50, "an update has from one to so many documents")
	f.Uint64Var(&o.seed, "seed", 1, "what decides the order of the documents and the sizes of updates")
	f.BoolVar(&o.exclude, "exclude-self", false, "leave out of each ranking the document that has the id of the query")
	f.BoolVar(&o.settle, "settle", false, "wait after each update for the training that it may have begun")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() != 2 || o.batch < 1 {
		return o, errors.New("want COLLECTION and VECTORS, and a batch of at least 1")
	}
	o.collection, o.vectors = f.Arg(0), f.Arg(1)
	if o.until, err = program.List(*until, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }); err != nil || len(o.until) == 0 {
		return o, fmt.Errorf("-until %s: want numbers", *until)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "plaid-grown-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	}
	fmt.Fprintln(stdout, "| index | bits | K | trainings | seconds | longest update ms | MB | nDCG@10 | R@10 | R@100 | p50 ms | drift |")
	fmt.Fprintln(stdout, "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	once := row{name: "built at once", path: filepath.Join(o.dir, "once.plaid")}
	if err := once.measure(ctx, o, stdout); err != nil {
		return err
	}
	for _, until := range o.until {
		r := row{name: fmt.Sprintf("grown, precise until %d", until)}
		if until == 0 {
			r.name = "grown"
		}
		if err := r.grow(ctx, o, until, stderr); err != nil {
			return err
		}
		if err := r.measure(ctx, o, stdout); err != nil {
			return err
		}
	}
	return nil
}

// row is one index, and a line of the table.
type row struct {
	name, path string
	trainings  uint64
	grown      time.Duration
	longest    time.Duration
	drift      float64
}

// grow makes a collection by updates of a few documents in random order.
func (r *row) grow(ctx context.Context, o options, until int64, log io.Writer) (err error) {
	files, _, err := beir.Files(o.vectors)
	if err != nil {
		return err
	}
	src, err := vectors.Open(ctx, files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dir := filepath.Join(o.dir, fmt.Sprintf("until-%d", until))
	s, err := store.Open(ctx, dir, &store.Options{
		Growth: store.Growth{Until: until, Flat: o.flat}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	c, err := s.Declare(ctx, "grown", store.Config{Nbits: o.nbits})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.seed, 0))
	start := time.Now()
	order := rng.Perm(src.Len())
	for len(order) > 0 {
		n := min(1+rng.IntN(o.batch), len(order))
		docs, err := read(ctx, src, order[:n])
		if err != nil {
			return err
		}
		order = order[n:]
		begin := time.Now()
		if _, err := c.Update(ctx, docs, store.UpdateOptions{}); err != nil {
			return err
		}
		r.longest = max(r.longest, time.Since(begin))
		if !o.settle && len(order) > 0 {
			continue
		}
		st, err := settled(ctx, c)
		if err != nil {
			return err
		}
		r.trainings, r.drift = st.Counts.Trainings, st.Growth.Drift.Ratio
	}
	r.grown = time.Since(start)
	r.path = filepath.Join(dir, "grown", "index.plaid")
	return nil
}

// settled waits until no training runs.
func settled(ctx context.Context, c *store.Collection) (store.Stats, error) {
	for {
		st, err := c.Stats(ctx)
		if err != nil || !st.Growth.Training {
			return st, err
		}
		select {
		case <-ctx.Done():
			return st, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func read(ctx context.Context, src vectors.Source, rows []int) ([]store.Document, error) {
	var docs []store.Document
	for _, row := range rows {
		for d, err := range src.Docs(ctx, row, row+1) {
			if err != nil {
				return nil, err
			}
			if len(d.Tokens) > 0 { // a collection takes no empty ones
				docs = append(docs, store.Document{ID: d.ID, Dim: src.Dim(), Vectors: append([]float32(nil), d.Tokens...)})
			}
		}
	}
	return docs, nil
}

// measure searches and evaluates an index, which is built if it is not there.
func (r *row) measure(ctx context.Context, o options, w io.Writer) error {
	measures, err := eval.ParseMeasures("nDCG@10", "R@10", "R@100")
	if err != nil {
		return err
	}
	files, err := beir.Folder(o.vectors)
	if err != nil {
		return err
	}
	report, err := beir.Run(ctx, o.collection, files, beir.Options{
		Index: r.path, Build: index.BuildOptions{Nbits: o.nbits}, Measures: measures, Eval: eval.Options{ExcludeSelf: o.exclude},
	})
	if err != nil {
		return err
	}
	seconds := report.Seconds.Build
	if r.grown > 0 {
		seconds = r.grown.Seconds()
	}
	ix, err := index.Open(ctx, r.path, nil)
	if err != nil {
		return err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return errors.Join(err, ix.Close())
	}
	h := snap.Header()
	m := report.Result.Means
	_, err = fmt.Fprintf(w, "| %s | %d | %d | %d | %.1f | %d | %.1f | %.4f | %.4f | %.4f | %.2f | %.2f |\n",
		r.name, h.Nbits, h.Centroids, r.trainings, seconds, r.longest.Milliseconds(), float64(report.Bytes)/1e6, m[0], m[1], m[2],
		float64(report.Latency.P50)/1e6, r.drift)
	return errors.Join(err, snap.Close(), ix.Close())
}
