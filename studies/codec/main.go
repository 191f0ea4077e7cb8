// Codec measures what compression costs: it encodes a collection of token
// vectors with plaid's codec and with the reference codec of ColBERTv2
// (arXiv 2112.01488, section 3.3), on the same centroids and in the same number of
// bytes, ranks all documents by MaxSim over what was stored, and holds scores
// and rankings against exact MaxSim over the vectors as they were. It prints a
// table in Markdown; docs/lab/codec.md shows and explains it.
//
//	go run ./studies/codec [flags] VECTORS DATA
//
// VECTORS is a folder with docs.npy, doclens.npy, doc_ids.txt, queries.npy and
// query_ids.txt; DATA is one with qrels in BEIR's layout.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/studies/program"
)

func main() { program.Main("codec", run) }

type options struct {
	split       string
	cache       string
	queries     int
	excludeSelf bool
	sample      int
	train       codec.TrainOptions
	ks          ints
	nbits       ints
	pools       ints
	reference   bool
	sampleOnly  bool
	ternary     bool
}

// ints is a list of numbers, separated by commas.
type ints []int

func (l *ints) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(*l)), " ", ","), "[]")
}

func (l *ints) Set(s string) error {
	all, err := program.List(s, strconv.Atoi)
	if err != nil || len(all) == 0 || slices.Min(all) < 0 {
		return errors.New("want numbers, separated by commas")
	}
	*l = all
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{ks: ints{0}, nbits: ints{1, 2, 4}, pools: ints{1}}
	f := flag.NewFlagSet("codec", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Var(&o.ks, "k", "numbers of centroids (0: the default for the number of tokens)")
	f.Var(&o.nbits, "nbits", "bits a component")
	f.Var(&o.pools, "pool", "pool the tokens of a document to one in N")
	f.StringVar(&o.split, "split", "test", "qrels to evaluate with")
	f.StringVar(&o.cache, "cache", "", "file that keeps the exact scores from one run to the next")
	f.IntVar(&o.queries, "queries", 0, "use the first `N` queries (0: all)")
	f.BoolVar(&o.excludeSelf, "exclude-self", false, "never retrieve a document of the query's id")
	f.BoolVar(&o.reference, "reference", true, "measure the reference codec as well")
	f.BoolVar(&o.ternary, "ternary", false, "measure three levels a component (1.6 bits) as well, beside 2 bits")
	f.BoolVar(&o.sampleOnly, "sample-only", false, "leave out the round of k-means over what the sample does not hold")
	f.IntVar(&o.sample, "sample", 0, "train on at most `N` tokens (0: as many as a build of the default memory)")
	f.IntVar(&o.train.Iterations, "iterations", 0, "rounds of k-means (0: the default)")
	f.BoolVar(&o.train.NoDimScales, "no-dim-scales", false, "fit no scale for each dimension")
	f.BoolVar(&o.train.NoCentroidScales, "no-centroid-scales", false, "fit no scale for each centroid")
	f.IntVar(&o.train.Threads, "threads", runtime.GOMAXPROCS(0), "goroutines")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return errors.New("want the folders VECTORS and DATA")
	}
	be, err := kernels.Select("")
	if err != nil {
		return err
	}
	o.train.Backend = be
	c, err := load(ctx, f.Arg(0), f.Arg(1), o)
	if err != nil {
		return err
	}
	exact, err := exactScores(ctx, c, o)
	if err != nil {
		return err
	}
	s, err := newStudy(c, exact, o)
	if err != nil {
		return err
	}
	return s.run(ctx, stdout)
}
