package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/eval"
)

// compareFlags say how runs are compared. Without judgements only rankings are.
type compareFlags struct {
	evalFlags
	tests  eval.CompareOptions
	family string
	agree  eval.AgreementOptions
	shown  int
	format string
}

// compared is a run against the first one.
type compared struct {
	name      string                  // the path
	queries   int                     // that means and tests run over
	measures  []eval.SystemComparison // none without judgements
	agreement *eval.Agreement
}

func (a *app) compareCommand() *cobra.Command {
	var c compareFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare RUN RUN… [--qrels FILE]",
		Short: "Say how runs differ, and whether chance explains it",
		Long: withExitStatus(`
Compare each run with the first one: how alike they rank (overlap of the first k,
rank-biased overlap, Kendall's tau-b) and, with --qrels, what each measure gives,
the mean difference with its interval by bootstrap, wins, ties and losses by
query, and the p of three paired two-sided tests: Student's t, Fisher's
randomisation and the bootstrap. Differences are those of the run less the first.
Resampling repeats to the bit for the same --seed.

Several tests make a false positive likely, so each p is also given after Holm's
correction: over all runs and measures, or, where one measure was decided on
beforehand, with --holm runs over the runs of each measure.

The queries that differ most are those of the first measure, or without
judgements those whose rankings agree least. Formats: table is for reading; tsv
has the columns run, measure, statistic, value; json is one object, with the
queries of every measure.`),
		Example: `  plaid compare exhaustive.trec pruned.trec
  plaid compare bm25.run plaid.run plaid-1bit.run --qrels scifact
  plaid compare a.run b.run --qrels qrels.trec --measures nDCG@10 --samples 100000 --seed 7 --json`,
		Args: takes("RUN", "RUN", "RUN…"),
	}
	f := cmd.Flags()
	c.evalFlags.register(f, "nDCG@10,AP,RR,R@100")
	f.Uint64Var(&c.tests.Seed, "seed", 0, "`N` that resampling starts from")
	f.Var(newInt(&c.tests.Samples, 10_000, 1), "samples", "random samples of a test")
	f.Var(newShare(&c.tests.Confidence, 0.95), "confidence", "share that the interval of a difference covers")
	f.Var(newChoice(&c.family, "all", "all", "runs"), "holm", "what Holm's correction is over: all runs and measures, or the runs of each measure")
	f.VarP(newInt(&c.agree.K, 10, 1), "depth", "k", "depth of the overlap")
	f.Var(newShare(&c.agree.P, 0.9), "rbo-p", "persistence of rank-biased overlap; the mean depth is 1/(1−X)")
	f.Var(newInt(&c.shown, 5, 0), "queries-shown", "how many of the queries that differ most to list")
	f.Var(newChoice(&c.format, "table", "table", "tsv", "json"), "format", "how to print the comparison")
	f.BoolVar(&asJSON, "json", false, "the same as --format json, and errors as JSON")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if asJSON {
			c.format = "json"
		}
		for _, name := range []string{"split", "measures", "average", "samples", "seed", "confidence", "holm"} {
			if c.qrels == "" && cmd.Flags().Changed(name) {
				return usagef("--%s goes with --qrels", name)
			}
		}
		err := a.compare(ctx, &c, args)
		if errors.Is(err, eval.ErrParameter) {
			return usageError{err} // samples that do not suffice for the confidence
		}
		return err
	})
	return cmd
}

func (a *app) compare(ctx context.Context, c *compareFlags, paths []string) error {
	var qrels *eval.Qrels
	if c.qrels != "" {
		var err error
		if qrels, err = c.load(ctx); err != nil {
			return err
		}
	}
	runs, err := a.loadRuns(ctx, paths)
	if err != nil {
		return err
	}
	others, err := c.agreements(ctx, paths, runs)
	if err != nil {
		return err
	}
	var results []judged
	if qrels != nil {
		if results, err = a.judge(ctx, &c.evalFlags, qrels, paths, runs); err != nil {
			return err
		}
		if err := c.significance(ctx, results, others); err != nil {
			return err
		}
	}
	text, err := c.render(paths[0], results, others)
	if err != nil {
		return err
	}
	return a.print(text)
}

// agreements compares the rankings of all but the first run with those of the first.
func (c *compareFlags) agreements(ctx context.Context, paths []string, runs []*eval.Run) ([]compared, error) {
	c.agree.Ties, c.agree.ExcludeSelf = c.ties, c.excludeSelf
	others := make([]compared, len(runs)-1)
	for i, run := range runs[1:] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		agreement, err := eval.Agree(run, runs[0], c.agree)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", paths[0], err)
		}
		if agreement.Shared() == 0 {
			return nil, fmt.Errorf("%s and %s have no query in common", paths[0], paths[i+1])
		}
		others[i] = compared{name: paths[i+1], agreement: agreement}
	}
	return others, nil
}

// significance tests the measures of all but the first run against the first.
func (c *compareFlags) significance(ctx context.Context, results []judged, others []compared) error {
	systems := make([]*eval.Result, len(others))
	for i := range others {
		systems[i] = results[i+1].Result
	}
	c.tests.Average, c.tests.Differing, c.tests.AcrossMeasures = c.average, c.shown, c.family == "all"
	if c.shown == 0 {
		c.tests.Differing = -1
	}
	all, err := eval.CompareAll(ctx, results[0].Result, systems, c.tests)
	if err != nil {
		return err
	}
	for _, m := range all {
		for i, s := range m.Systems {
			others[i].queries = len(s.Queries)
			others[i].measures = append(others[i].measures, s)
		}
	}
	return nil
}
