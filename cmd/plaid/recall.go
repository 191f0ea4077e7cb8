package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// recallFlags say what plaid recall compares.
type recallFlags struct {
	queries               queryFiles
	originals             documentFiles
	k                     []int
	probes, approx, exact int
	threads               int
	format                string
	perQuery              bool
}

func (r *recallFlags) register(f *pflag.FlagSet) {
	r.queries.register(f)
	f.VarP(newInts(&r.k, 1, 10, 100), "k", "k", "how many documents are searched for; each number is measured on its own")
	f.Var(newInt(&r.probes, 0, 0), "probes", "centroids to probe for a query token (0: by k)")
	f.Var(newInt(&r.approx, 0, 0), "approx", "documents that get an approximate score at most (0: by k)")
	f.Var(newInt(&r.exact, 0, 0), "exact", "documents that get an exact score at most, at least k (0: by k)")
	d := &r.originals
	f.StringArrayVar(&d.vectors, "vectors", nil, "`FILE` of the vectors that the index was made from: measures compression too; may be repeated")
	f.StringArrayVar(&d.lengths, "lengths", nil, "`FILE` with the number of tokens of each document")
	f.StringArrayVar(&d.masks, "mask", nil, "`FILE` [docs, rows] of booleans or integers, for padded vectors: 0 is padding")
	f.StringArrayVar(&d.ids, "ids", nil, "`FILE` with one document id a line (default: row numbers from 0)")
	f.Var(newInt(&r.threads, 0, 0), "threads", "goroutines (0: one a processor)")
	f.Var(newChoice(&r.format, "table", "table", "tsv", "json"), "format", "how to print results")
	f.BoolVar(&r.perQuery, "per-query", false, "print what each query misses, and where it was lost")
}

func (a *app) recallCommand() *cobra.Command {
	var r recallFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "recall INDEX --queries FILE",
		Short: "Measure what pruning and compression lose",
		Long: withExitStatus(`
Measure two losses, which are never mixed.

Pruning: the share of the exhaustive result over the stored vectors that a
search finds. Each missing document is followed through the search, to the stage
that lost it: not probed (no probed centroid is among its own), cut (beyond the
approximate budget), pruned (beyond the exact budget, by approximate score), or
outranked (scored exactly; another has the same score but for rounding).

Compression, where --vectors are given: the share of the exact result, MaxSim
over the original vectors in float32, that exhaustive search over the stored
vectors returns; and by how much the scores of the exact result differ.

Format tsv has the columns query, measure and value, with all digits, and the
mean as query "all" at the end; json is one object.`),
		Example: `  plaid recall docs.plaid --queries queries.npy
  plaid recall docs.plaid --queries queries.npy -k 100 --probes 4 --per-query --format json
  plaid recall docs.plaid --queries queries.npy --vectors docs.npy --lengths doclens.npy --ids ids.txt`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	r.register(f)
	f.BoolVar(&asJSON, "json", false, "the same as --format json, and errors as JSON")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if asJSON {
			r.format = "json"
		}
		return a.recall(ctx, args[0], &r)
	})
	return cmd
}

func (a *app) recall(ctx context.Context, path string, r *recallFlags) error {
	ks := slices.Compact(slices.Sorted(slices.Values(r.k)))
	most := ks[len(ks)-1]
	return a.measure(ctx, path, &r.queries, func(snap *index.Snapshot, set *querySet) error {
		engine := search.NewAt(snap, r.threads)
		progress := a.progress()
		reference, err := engine.Reference(ctx, set.qs, most, progress)
		if err != nil {
			return err
		}
		rep := recallReport{Index: path, Queries: len(set.qs), ids: set.ids, perQuery: r.perQuery}
		for _, k := range ks {
			o := search.Options{K: k, Probes: r.probes, Approx: r.approx, Exact: r.exact}
			x, err := engine.Recall(ctx, set.qs, o, reference, progress)
			if err != nil {
				return err
			}
			rep.addPruning(x)
		}
		if len(r.originals.vectors) > 0 {
			c, err := a.compression(ctx, engine, r, set, most, reference)
			if err != nil {
				return err
			}
			rep.addCompression(c, ks)
		}
		text, err := rep.render(r.format)
		if err != nil {
			return err
		}
		return a.print(text)
	})
}

func (a *app) compression(ctx context.Context, engine *search.Engine, r *recallFlags, set *querySet, k int, reference [][]search.Hit) (c *search.Compression, err error) {
	src, err := r.originals.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if c, err = engine.Compression(ctx, set.qs, src, k, reference, a.progress()); err != nil {
		return nil, err
	}
	if c.Reshaped > 0 {
		a.warn("%s of --vectors have another number of tokens in the index: are they those it was made from?", plural(c.Reshaped, "document"))
	}
	return c, nil
}
