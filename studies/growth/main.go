// Growth measures how search time grows with a collection: it makes indexes of
// any number of tokens from a real collection, by drawing its documents at random
// and adding noise to their vectors, and searches them with the real queries and
// the parameters that are derived, one query at a time on one core. Recall is
// against exhaustive search of the same index. It prints a table in Markdown;
// docs/lab/search-quality.md shows it.
//
//	go run ./studies/growth [flags] VECTORS
//
// VECTORS is a folder with docs.npy, doclens.npy and queries.npy. Indexes are kept
// in the folder of -dir, and one that is there is searched as it is.
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
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/eval/plot"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/atomicfile"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/studies/program"
	"github.com/plaid-ir/plaid/vectors"
)

func main() { program.Main("growth", run) }

type options struct {
	vectors, dir, svg string
	millions          []float64
	noise             float64
	k, queries        int
	buildOnly         bool
	build             index.BuildOptions
	seed              uint64
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("growth", flag.ContinueOnError)
	f.SetOutput(stderr)
	tokens := f.String("tokens", "1,5,20", "sizes in millions of tokens, separated by commas")
	f.StringVar(&o.dir, "dir", ".", "folder of the indexes")
	f.StringVar(&o.svg, "svg", "", "draw latency against tokens into this file")
	f.Float64Var(&o.noise, "noise", 0.5, "length of the noise relative to that of a vector")
	f.IntVar(&o.k, "k", 100, "how many documents to search for")
	f.IntVar(&o.queries, "queries", 100, "use the first `N` queries")
	f.BoolVar(&o.buildOnly, "build", false, "build indexes that are not there, and measure nothing")
	f.IntVar(&o.build.Centroids, "centroids", 0, "number of centroids (0: by the number of tokens)")
	f.IntVar(&o.build.SampleDocs, "sample-docs", 0, "documents to train on (0: by their number)")
	f.Uint64Var(&o.seed, "seed", 1, "what decides every random choice")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() != 1 {
		return o, errors.New("want the folder VECTORS")
	}
	o.vectors = f.Arg(0)
	if o.k < 1 || o.queries < 1 || !(o.noise >= 0 && o.noise < 100) {
		return o, errors.New("k and queries are at least 1, noise is from 0 to 100")
	}
	o.millions, err = program.List(*tokens, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	if err != nil || len(o.millions) == 0 || !(slices.Min(o.millions) > 0) || slices.Max(o.millions) > 1000 {
		return o, fmt.Errorf("-tokens %s: want millions above 0 and up to 1000", *tokens)
	}
	return o, nil
}

// measured is one size.
type measured struct {
	tokens, docs uint64
	centroids    int
	point        quality.Point
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var all []measured
	for _, m := range o.millions {
		path := filepath.Join(o.dir, fmt.Sprintf("growth-%v.plaid", m))
		if err := build(ctx, path, m, o, stderr); err != nil {
			return err
		}
		if o.buildOnly {
			continue
		}
		one, err := measure(ctx, path, o)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	if o.buildOnly {
		return nil
	}
	if err := table(stdout, all, o); err != nil || o.svg == "" {
		return err
	}
	return draw(all, o)
}

// build makes the index at path unless it is there.
func build(ctx context.Context, path string, millions float64, o options, log io.Writer) (err error) {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	src, err := vectors.Open(ctx, vectors.Files{Vectors: filepath.Join(o.vectors, "docs.npy"), Lengths: filepath.Join(o.vectors, "doclens.npy")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	g, err := newGrown(src, int64(millions*1e6), o.noise, o.seed)
	if err != nil {
		return err
	}
	start := time.Now()
	options := o.build
	options.Seed = o.seed
	report, err := index.Build(ctx, path, g, &options)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(log, "%s: %d tokens in %v, root mean square error %.4f\n", path, report.Tokens, time.Since(start).Round(time.Second), report.RMSE)
	return err
}

func measure(ctx context.Context, path string, o options) (m measured, err error) {
	queries, err := readQueries(ctx, filepath.Join(o.vectors, "queries.npy"), o.queries)
	if err != nil {
		return m, err
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	snap, err := ix.Snapshot()
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	all, err := search.NewAt(ctx, snap, nil)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	reference, err := quality.Reference(ctx, all, queries, o.k, nil)
	if err != nil {
		return m, err
	}
	one, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: 1})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, one.Close()) }()
	points, err := quality.Sweep(ctx, one, snap, queries, quality.SweepOptions{
		K: o.k, Settings: []quality.Setting{{}}, Repeat: 2,
	}, reference)
	if err != nil {
		return m, err
	}
	state := snap.State()
	return measured{uint64(state.LiveTokens), uint64(state.Live), snap.Header().Centroids, points[0]}, nil
}

// readQueries reads the first n queries, or all where there are fewer.
func readQueries(ctx context.Context, path string, n int) (queries []search.Query, err error) {
	src, err := vectors.Open(ctx, vectors.Files{Vectors: path})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	for d, err := range src.Docs(ctx, 0, min(n, src.Len())) {
		if err != nil {
			return nil, err
		}
		queries = append(queries, search.Query{Vectors: append([]float32(nil), d.Tokens...), Dim: src.Dim()})
	}
	return queries, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

func table(w io.Writer, all []measured, o options) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| tokens | documents | K | p50 ms | p95 ms | recall@%d | candidates | scored exactly | centroids | probe | approx | exact and refine ms |\n", o.k)
	b.WriteString("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, m := range all {
		s, n := m.point.Stats, float64(m.point.Stats.Queries)
		of := func(d time.Duration) float64 { return milliseconds(d) / n }
		fmt.Fprintf(&b, "| %d | %d | %d | %.2f | %.2f | %.4f | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f |\n",
			m.tokens, m.docs, m.centroids, milliseconds(m.point.Latency.P50), milliseconds(m.point.Latency.P95), m.point.Recall,
			float64(s.Candidates)/n, float64(s.ExactDocs)/n,
			of(s.Times.Centroids), of(s.Times.Probe), of(s.Times.Approx), of(s.Times.Exact+s.Times.Refine))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func draw(all []measured, o options) error {
	p50 := plot.Series{Name: "p50", Line: true, Strong: true}
	p95 := plot.Series{Name: "p95", Line: true}
	linear := plot.Series{Name: "p50 if it were linear", Line: true, Mark: plot.NoMark}
	for _, m := range all {
		x := float64(m.tokens) / 1e6
		title := fmt.Sprintf("recall@%d %.4f", o.k, m.point.Recall)
		p50.Points = append(p50.Points, plot.Point{X: x, Y: milliseconds(m.point.Latency.P50), Title: title})
		p95.Points = append(p95.Points, plot.Point{X: x, Y: milliseconds(m.point.Latency.P95), Title: title})
		first := all[0]
		linear.Points = append(linear.Points, plot.Point{X: x, Y: milliseconds(first.point.Latency.P50) * float64(m.tokens) / float64(first.tokens)})
	}
	chart := plot.Chart{
		Title:    fmt.Sprintf("Time of a search for %d documents", o.k),
		Subtitle: fmt.Sprintf("one core, derived parameters; documents drawn at random, noise %v", o.noise),
		X:        plot.Axis{Label: "tokens (millions)", Scale: plot.Log},
		Y:        plot.Axis{Label: "milliseconds", Scale: plot.Log},
		Series:   []plot.Series{p50, p95, linear},
	}
	svg, err := chart.SVG()
	if err != nil {
		return err
	}
	return atomicfile.Write(context.Background(), o.svg, func(w io.Writer) error {
		_, err := w.Write(svg)
		return err
	})
}
