package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// growthOptions are the options of the study of how search time grows with a collection. It makes
// indexes of any number of tokens from a real collection, by drawing documents at random and adding
// noise to their vectors. It searches them with the real queries and the derived parameters, one
// query at a time on one core. Recall is measured against exhaustive search of the same index.
type growthOptions struct {
	vectors, dir string
	noise        float64
	k, queries   int
	settings     []quality.Setting
	build        index.BuildOptions
}

// growthStudy registers the flags of the study of growth.
func growthStudy(f *flag.FlagSet) measureFunc {
	var o growthOptions
	sizes := numbers(f, "tokens", 0.001, "sizes in millions of tokens", 1.0, 5, 20)
	buildOnly := f.Bool("build", false, "build indexes that are not there, and measure nothing")
	f.StringVar(&o.dir, "dir", ".", "folder where indexes are kept; one that is there is searched as it is")
	f.Float64Var(&o.noise, "noise", 0.5, "length of the noise relative to that of a vector")
	f.IntVar(&o.k, "k", 100, "how many documents to search for")
	efforts := numbers(f, "efforts", 0.001, "what multiplies the budgets that are derived, a row each", 1.0)
	device := f.String("device", "cpu", "build and search exhaustively on this `DEVICE`")
	f.IntVar(&o.queries, "queries", 100, "use the first `N` queries")
	f.IntVar(&o.build.Centroids, "centroids", 0, "number of centroids (0: by the number of tokens)")
	f.IntVar(&o.build.SampleDocs, "sample-docs", 0, "documents to train on (0: by their number)")
	f.Uint64Var(&o.build.Seed, "seed", 1, "what decides every random choice")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		o.vectors = args[0]
		for _, effort := range *efforts {
			o.settings = append(o.settings, quality.Setting{Effort: effort})
		}
		if o.build.Device, _, err = kernels.OpenDevice(ctx, *device); err != nil {
			return err
		}
		if o.build.Device != nil {
			defer func() { err = errors.Join(err, o.build.Device.Close()) }()
		}
		var measured []grownSize
		for _, millions := range *sizes {
			path := filepath.Join(o.dir, fmt.Sprintf("growth-%v.plaid", millions))
			if err := o.buildIndex(ctx, path, millions, stderr); err != nil {
				return err
			}
			if *buildOnly {
				continue
			}
			results, err := o.search(ctx, path)
			if err != nil {
				return err
			}
			measured = append(measured, results...)
		}
		if !*buildOnly {
			o.writeTable(stdout, measured)
		}
		return nil
	}
}

// grownSize is the result for one size and one effort.
type grownSize struct {
	tokens, docs uint64
	centroids    int
	point        quality.Point
}

// buildIndex builds the index at path, unless it exists.
func (o *growthOptions) buildIndex(ctx context.Context, path string, millions float64, log io.Writer) (err error) {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	src, err := openDocs(ctx, o.vectors)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	noisy, err := newNoisy(src, int64(millions*1e6), o.noise, o.build.Seed)
	if err != nil {
		return err
	}
	start := time.Now()
	report, err := index.Build(ctx, path, noisy, &o.build)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(log, "%s: %d tokens in %v, root mean square error %.4f\n", path, report.Tokens,
		time.Since(start).Round(time.Second), report.RMSE)
	return err
}

// search measures searches of an index against exhaustive search of the same index.
func (o *growthOptions) search(ctx context.Context, path string) (sizes []grownSize, err error) {
	m, err := readQueries(ctx, o.vectors, o.queries)
	if err != nil {
		return nil, err
	}
	queries := m.queries()
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	snap, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	parallelEngine, err := search.NewAt(ctx, snap, &search.EngineOptions{Device: o.build.Device})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parallelEngine.Close()) }()
	exhaustive, err := quality.Reference(ctx, parallelEngine, queries, o.k, nil)
	if err != nil {
		return nil, err
	}
	singleEngine, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, singleEngine.Close()) }()
	points, err := quality.Sweep(ctx, singleEngine, queries,
		quality.SweepOptions{K: o.k, Settings: o.settings, Repeat: 2}, exhaustive)
	if err != nil {
		return nil, err
	}
	state := snap.State()
	for _, p := range points {
		sizes = append(sizes, grownSize{state.LiveTokens, uint64(state.Live), snap.Header().Centroids, p})
	}
	return sizes, nil
}

// milliseconds returns a time in milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

// writeTable writes the results as a table.
func (o *growthOptions) writeTable(w io.Writer, sizes []grownSize) {
	fmt.Fprintf(w, "| tokens | documents | K | effort | p50 ms | p95 ms | recall@%d | candidates | scored exactly "+
		"| centroids | probe | approx | exact and refine ms |\n", o.k)
	fmt.Fprintln(w, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, size := range sizes {
		s, n := size.point.Stats, float64(size.point.Stats.Queries)
		mean := func(d time.Duration) float64 { return milliseconds(d) / n }
		fmt.Fprintf(w, "| %d | %d | %d | %.3g | %.2f | %.2f | %.4f | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f |\n",
			size.tokens, size.docs, size.centroids, size.point.Effort, milliseconds(size.point.Latency.P50),
			milliseconds(size.point.Latency.P95), size.point.Recall,
			float64(s.Candidates)/n, float64(s.ExactDocs)/n,
			mean(s.Times.Centroids), mean(s.Times.Probe), mean(s.Times.Approx), mean(s.Times.Exact+s.Times.Refine))
	}
}
