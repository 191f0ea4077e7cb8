package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/eval"
)

// evalFlags say how runs are judged.
type evalFlags struct {
	qrels, split string
	measures     []eval.Measure
	ties         eval.Ties
	average      eval.Average
	excludeSelf  bool
}

func (e *evalFlags) register(f *pflag.FlagSet, measures string) {
	f.StringVar(&e.qrels, "qrels", "", "`FILE` of judgements: BEIR or TREC columns, plain or gzip; or the folder of a BEIR collection")
	f.StringVar(&e.split, "split", "", "`NAME` of the judgements in a folder: qrels/NAME.tsv (default test)")
	f.Var(newMeasures(&e.measures, measures), "measures", "what to compute, by the names of ir_measures")
	f.Var(newNamed(&e.ties, eval.TiesTREC, eval.TiesTREC10, eval.TiesRank), "ties",
		"order of hits: by score, float32 (trec) or float64 (trec10), equal ones by id from the last; or by the rank column")
	f.Var(newNamed(&e.average, eval.AverageJudged, eval.AverageEvaluated, eval.AverageRelevant), "average",
		"mean over all judged queries, a missing one counting 0; over those also in the run; or over all with a relevant document")
	f.BoolVar(&e.excludeSelf, "exclude-self", false, "leave out a hit whose id is that of the query (ArguAna, Quora)")
}

func (e *evalFlags) options() eval.Options {
	return eval.Options{Ties: e.ties, Average: e.average, ExcludeSelf: e.excludeSelf}
}

// load reads the judgements.
func (e *evalFlags) load(ctx context.Context) (*eval.Qrels, error) {
	if e.qrels == "" {
		return nil, usagef("--qrels is missing")
	}
	info, err := os.Stat(e.qrels)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		split := e.split
		if split == "" {
			split = "test"
		}
		return eval.LoadQrelsOf(e.qrels, split)
	case e.split != "":
		return nil, usagef("--split goes with a folder, and %s is a file", e.qrels)
	}
	return readFile(ctx, e.qrels, eval.ReadQrels)
}

// judged is a run with its evaluation.
type judged struct {
	name string // the path
	run  *eval.Run
	*eval.Result
}

// judge evaluates runs.
func (a *app) judge(ctx context.Context, e *evalFlags, qrels *eval.Qrels, paths []string, runs []*eval.Run) ([]judged, error) {
	results := make([]judged, len(runs))
	for i, run := range runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		res, err := eval.Evaluate(qrels, run, e.measures, e.options())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.qrels, err)
		}
		evaluated := res.Count(eval.AverageEvaluated)
		if evaluated == 0 {
			return nil, fmt.Errorf("%s: none of its queries (%d) is judged in %s (%d)", paths[i], run.Len(), e.qrels, qrels.Len())
		}
		if 2*res.SelfFirst > evaluated && !e.excludeSelf {
			a.warn("%s: the first hit has the id of the query for %d of %s; if queries are documents, --exclude-self leaves it out",
				paths[i], res.SelfFirst, countNoun(evaluated, "query", "queries"))
		}
		results[i] = judged{paths[i], run, res}
	}
	return results, nil
}

// loadRuns reads runs. The path - is stdin.
func (a *app) loadRuns(ctx context.Context, paths []string) ([]*eval.Run, error) {
	runs := make([]*eval.Run, len(paths))
	stdin := false
	for i, path := range paths {
		var err error
		switch {
		case path != "-":
			runs[i], err = readFile(ctx, path, eval.ReadRun)
		case stdin:
			err = usagef("stdin (-) is one run")
		default:
			stdin = true
			runs[i], err = eval.ReadRun(ctxReader{ctx, a.in}, "stdin")
		}
		if err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// readFile reads a file with one of the readers of eval.
func readFile[T any](ctx context.Context, path string, read func(io.Reader, string) (T, error)) (v T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return read(ctxReader{ctx, f}, path)
}

// ctxReader ends with the error of its context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func (a *app) evalCommand() *cobra.Command {
	var e evalFlags
	var o evalOutput
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "eval --qrels FILE RUN…",
		Short: "Measure runs against judgements",
		Long: withExitStatus(`
Compute measures of ranking for runs (TREC's six columns, or query, document,
rank, score; plain or gzip; - is stdin). Values are those of trec_eval; names are
those of ir_measures:

  nDCG@10  nDCG(dcg='exp-log2')@10    gain: the grade, or 2^grade − 1
  AP  AP@100  RR  RR@10               also MAP, MRR
  R@100  P@10  Success@5              also Recall, Precision
  Rprec  Bpref
  Judged@10  Hole@10                  hits with and without a judgement

AP, RR, R, P, Success, Rprec and Bpref take the lowest grade that is relevant,
as in P(rel=2)@10.

Formats: table is for reading; tsv has the columns query, measure, value, with a
first one for the run if there are several, all digits, and the mean as query
"all" at the end; json is one object.`),
		Example: `  plaid eval --qrels scifact run.trec
  plaid eval --qrels qrels.trec --measures nDCG@10,AP(rel=2),R@1000 bm25.run plaid.run.gz
  plaid eval --qrels arguana --exclude-self --per-query --format tsv run.trec > values.tsv`,
		Args: takes("RUN", "RUN…"),
	}
	f := cmd.Flags()
	e.register(f, "nDCG@10,AP,RR,R@100,P@10,Success@5,Judged@10")
	f.Var(newChoice(&o.format, "table", "table", "tsv", "json"), "format", "how to print values")
	f.BoolVar(&asJSON, "json", false, "the same as --format json, and errors as JSON")
	f.BoolVar(&o.perQuery, "per-query", false, "print the values of each query, before the means")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if asJSON {
			o.format = "json"
		}
		return a.eval(ctx, &e, o, args)
	})
	return cmd
}

func (a *app) eval(ctx context.Context, e *evalFlags, o evalOutput, paths []string) error {
	qrels, err := e.load(ctx)
	if err != nil {
		return err
	}
	runs, err := a.loadRuns(ctx, paths)
	if err != nil {
		return err
	}
	results, err := a.judge(ctx, e, qrels, paths, runs)
	if err != nil {
		return err
	}
	text, err := o.render(e, results)
	if err != nil {
		return err
	}
	return a.print(text)
}
