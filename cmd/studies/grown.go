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
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// grownOptions are those of the study of collections that grew from nothing, by a few
// documents at a time, beside indexes of the same documents that were built at once: what
// they find, how large they are, and what the growing cost.
type grownOptions struct {
	collection, vectors string
	dir                 string
	flat                int64
	nbits, batch        int
	seed                uint64
	exclude, settle     bool
}

func grownStudy(f *flag.FlagSet) measuring {
	var o grownOptions
	until := numbers[int64](f, "until", 0, "sizes in tokens up to which a collection is kept precisely (0: the default)", 0)
	f.Int64Var(&o.flat, "flat", 0, "tokens up to which nothing is trained (0: the default)")
	f.IntVar(&o.nbits, "nbits", 4, "residual bits a component in the end")
	f.IntVar(&o.batch, "batch", 50, "an update has from one to so many documents")
	f.Uint64Var(&o.seed, "seed", 1, "what decides the order of the documents and the sizes of updates")
	f.BoolVar(&o.exclude, "exclude-self", false, "leave out of each ranking the document that has the id of the query")
	f.BoolVar(&o.settle, "settle", false, "wait after each update for the training that it may have begun")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		if o.batch < 1 {
			return errors.New("want a batch of at least 1")
		}
		o.collection, o.vectors = args[0], args[1]
		if o.dir, err = os.MkdirTemp("", "plaid-grown-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
		fmt.Fprintln(stdout, "| index | bits | K | trainings | seconds | longest update ms | MB | nDCG@10 | R@10 | R@100 | p50 ms | drift |")
		fmt.Fprintln(stdout, "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
		once := grownIndex{name: "built at once", path: filepath.Join(o.dir, "once.plaid")}
		if err := once.evaluate(ctx, &o, stdout); err != nil {
			return err
		}
		for _, tokens := range *until {
			r := grownIndex{name: fmt.Sprintf("grown, precise until %d", tokens)}
			if tokens == 0 {
				r.name = "grown"
			}
			if err := r.grow(ctx, &o, tokens, stderr); err != nil {
				return err
			}
			if err := r.evaluate(ctx, &o, stdout); err != nil {
				return err
			}
		}
		return nil
	}
}

// grownIndex is one index, and a line of the table.
type grownIndex struct {
	name, path string
	trainings  uint64
	took       time.Duration
	longest    time.Duration
	drift      float64
}

// grow makes a collection by updates of a few documents in random order.
func (r *grownIndex) grow(ctx context.Context, o *grownOptions, until int64, log io.Writer) (err error) {
	src, err := openDocs(ctx, o.vectors)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dir := filepath.Join(o.dir, fmt.Sprintf("until-%d", until))
	s, err := store.Open(ctx, dir, &store.Options{
		Growth: collection.Growth{Until: until, Flat: o.flat}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	c, err := s.Declare(ctx, "grown", collection.Config{Nbits: o.nbits})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(o.seed, 0))
	start := time.Now()
	order := rng.Perm(src.Len())
	for len(order) > 0 {
		n := min(1+rng.IntN(o.batch), len(order))
		docs, err := readDocuments(ctx, src, order[:n])
		if err != nil {
			return err
		}
		order = order[n:]
		begin := time.Now()
		if _, err := c.Update(ctx, docs, collection.UpdateOptions{}); err != nil {
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
	r.took = time.Since(start)
	r.path = filepath.Join(dir, "grown", "index.plaid")
	return nil
}

// settled waits until no training runs.
func settled(ctx context.Context, c *store.Collection) (collection.Stats, error) {
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

// readDocuments reads rows for a collection, which takes no empty ones.
func readDocuments(ctx context.Context, src vectors.Source, rows []int) (docs []collection.Document, err error) {
	for _, row := range rows {
		for d, err := range src.Docs(ctx, row, row+1) {
			if err != nil {
				return nil, err
			}
			if len(d.Tokens) > 0 {
				docs = append(docs, collection.Document{ID: d.ID, Dim: src.Dim(), Vectors: append([]float32(nil), d.Tokens...)})
			}
		}
	}
	return docs, nil
}

// evaluate searches and evaluates an index, which is built if it is not there.
func (r *grownIndex) evaluate(ctx context.Context, o *grownOptions, w io.Writer) error {
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
	ix, err := index.Open(ctx, r.path, nil)
	if err != nil {
		return err
	}
	defer ix.Close()
	info, err := ix.Info(ctx)
	if err != nil {
		return err
	}
	m := report.Result.Means
	_, err = fmt.Fprintf(w, "| %s | %d | %d | %d | %.1f | %d | %.1f | %.4f | %.4f | %.4f | %.2f | %.2f |\n",
		r.name, info.Header.Nbits, info.Header.Centroids, r.trainings, max(report.Seconds.Build, r.took.Seconds()), r.longest.Milliseconds(), float64(report.Bytes)/1e6,
		m[0], m[1], m[2], float64(report.Latency.P50)/1e6, r.drift)
	return err
}
