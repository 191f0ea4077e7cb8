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

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/vectors"
)

// grownOptions are the options of the study of growing collections: it compares a collection that
// is built at once with one that receives the same documents in batches. Recall is measured against
// exact scores of the original vectors, with the searches that users get.
type grownOptions struct {
	vectors string
	// tokens is the size in millions of tokens. 0 means the documents as they are.
	tokens  float64
	noise   float64
	nbits   int
	batches []int
	until   []int64
	factor  float64
	queries int
	settle  bool
}

// grownStudy registers the flags of the study of growing collections.
func grownStudy(f *flag.FlagSet) measureFunc {
	var o grownOptions
	f.Float64Var(&o.tokens, "tokens", 0, "millions of tokens, of documents drawn at random with noise (0: the "+
		"documents as they are)")
	f.Float64Var(&o.noise, "noise", 0.5, "length of the noise relative to that of a vector")
	f.IntVar(&o.nbits, "nbits", 4, "bits a component in the end")
	f.Float64Var(&o.factor, "factor", 0, "a collection is trained when it has grown by so much (0: as collections are)")
	f.IntVar(&o.queries, "queries", 0, "use the first `N` queries (0: all)")
	f.BoolVar(&o.settle, "settle", false, "wait for each training before the next batch comes")
	batches := numbers(f, "batch", 1, "documents that come at a time, a row each", 100)
	until := numbers[int64](f, "until", -1, "tokens from which a collection is trained no more by itself (0: as "+
		"collections are), a row each", 0)
	return func(ctx context.Context, args []string, stdout, _ io.Writer) error {
		o.vectors, o.batches, o.until = args[0], *batches, *until
		return o.measure(ctx, stdout)
	}
}

// measure builds the collections and writes a table with a row for each.
func (o *grownOptions) measure(ctx context.Context, stdout io.Writer) (err error) {
	src, err := openDocs(ctx, o.vectors)
	if err != nil {
		return err
	}
	if o.tokens > 0 {
		if src, err = newNoisy(src, int64(o.tokens*1e6), o.noise, 1); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	queries, err := readQueries(ctx, o.vectors, o.queries)
	if err != nil {
		return err
	}
	docs, err := readDocuments(ctx, src)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "grown-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	m := grownMeasure{queries: queries.queries(), src: src}
	fmt.Fprintln(stdout, "| collection | bits | K | trainings | seconds | MB | of that free | R@10 | R@100 | p50 "+
		"ms | RMSE |")
	fmt.Fprintln(stdout, "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	start := time.Now()
	path := filepath.Join(dir, "once.plaid")
	if _, err := index.Build(ctx, path, src, &index.BuildOptions{Nbits: o.nbits, Seed: 42}); err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	err = m.measureIndex(ctx, stdout, "built at once", ix, 1, time.Since(start))
	if err = errors.Join(err, ix.Close()); err != nil {
		return err
	}
	for _, until := range o.until {
		for _, batch := range o.batches {
			if err := o.growCollection(ctx, stdout, &m, filepath.Join(dir, fmt.Sprint(until, batch)), docs, until,
				batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// growCollection adds the documents to a collection in batches, and measures it.
func (o *grownOptions) growCollection(
	ctx context.Context, stdout io.Writer, m *grownMeasure, dir string, docs []collection.DocumentInput,
	until int64, batch int,
) (err error) {
	s, err := store.Open(ctx, dir, &store.Options{Growth: collection.Growth{Until: until, Factor: o.factor}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	c, err := s.Create(ctx, "grown", collection.Config{Nbits: o.nbits})
	if err != nil {
		return err
	}
	start := time.Now()
	for batchDocs := range slices.Chunk(docs, batch) {
		if _, err := c.Update(ctx, batchDocs, collection.UpdateOptions{}); err != nil {
			return err
		}
		if o.settle {
			if err := c.WaitForGrowth(ctx); err != nil {
				return err
			}
		}
	}
	if err := c.WaitForGrowth(ctx); err != nil {
		return err
	}
	took := time.Since(start)
	// The writer executes this empty deletion after it has finished all other work.
	if _, err := c.Delete(ctx, collection.Selection{IDs: []string{}}); err != nil {
		return err
	}
	st, err := c.Stats(ctx)
	if err != nil {
		return err
	}
	ix, err := c.Index(ctx)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("batches of %d, final from %d tokens (0: as usual)", batch, until)
	return m.measureIndex(ctx, stdout, name, ix, int(st.Counts.Trainings), took)
}

// grownMeasure measures indexes of one collection.
type grownMeasure struct {
	queries []search.Query
	src     vectors.Source
	// exact are the hits of the queries over the original vectors.
	exact [][]search.Hit
}

// measureIndex searches an index and writes its row of the table. The time of a query is the best
// of three.
func (m *grownMeasure) measureIndex(ctx context.Context, w io.Writer, name string, ix *index.Index, trainings int,
	took time.Duration) (err error) {
	const k = 100
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	e, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if m.exact == nil {
		c, err := quality.MeasureCompression(ctx, e, snap, m.queries, m.src, k, nil, nil)
		if err != nil {
			return err
		}
		for _, q := range c.Queries {
			m.exact = append(m.exact, q.Exact)
		}
	}
	shares := map[int]float64{}
	var times []time.Duration
	for _, depth := range []int{10, k} {
		for i, q := range m.queries {
			fastest := time.Duration(0)
			var r *search.Result
			for range 3 {
				start := time.Now()
				if r, err = e.Search(ctx, q, search.Options{K: depth}); err != nil {
					return err
				}
				if took := time.Since(start); fastest == 0 || took < fastest {
					fastest = took
				}
			}
			if depth == 10 {
				times = append(times, fastest)
			}
			expected := map[string]bool{}
			for _, h := range m.exact[i][:min(depth, len(m.exact[i]))] {
				expected[h.ID] = true
			}
			found := 0
			for _, h := range r.Hits {
				if expected[h.ID] {
					found++
				}
			}
			shares[depth] += float64(found) / float64(max(len(expected), 1)) / float64(len(m.queries))
		}
	}
	slices.Sort(times)
	h := snap.Header()
	_, sizes, err := snap.Inspect(ctx)
	if err != nil {
		return err
	}
	pages, err := snap.Pages()
	if err != nil {
		return err
	}
	mb := func(bytes int64) float64 { return float64(bytes) / 1e6 }
	fmt.Fprintf(w, "| %s | %d | %d | %d | %.1f | %.1f | %.1f | %.4f | %.4f | %.2f | %.4f |\n", name, h.Nbits,
		h.Centroids, trainings,
		took.Seconds(), mb(pages.Size), mb(pages.Size-sizes.Total()), shares[10], shares[k],
		milliseconds(times[len(times)/2]), snap.Drift().AddedRMSE)
	return nil
}
