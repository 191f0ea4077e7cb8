package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

func (a *app) beirCommand() *cobra.Command {
	var o beir.Options
	var work effort
	var dir, mode, run, format string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "beir DIR --vectors DIR",
		Short: "Index, search and evaluate a test collection",
		Long: withExitStatus(`
Take a test collection in BEIR's layout from token vectors to a table of
measures. Of DIR only the judgements are read, qrels/SPLIT.tsv. The folder of
--vectors has docs and queries as .npy, .npz, .safetensors or .jsonl, and where
they have no lengths and ids of their own doclens.npy, doc_ids.txt,
querylens.npy and query_ids.txt.

Every judged query is searched, and counts; one without vectors counts 0. An
--index that is there is searched as it is, with the parameters that are stored
in it; a new one is kept.`),
		Example: `  plaid beir scifact --vectors scifact/vectors
  plaid beir arguana --vectors arguana/vectors --exclude-self --index arguana.plaid --run arguana.trec
  plaid beir scifact --vectors scifact/vectors --nbits 4 --mode exhaustive --json`,
		Args: takes("DIR"),
	}
	f := cmd.Flags()
	f.StringVar(&dir, "vectors", "", "`DIR` with the vectors of documents and queries")
	f.StringVar(&o.Split, "split", "test", "`NAME` of the judgements: qrels/NAME.tsv")
	f.StringVar(&o.Index, "index", "", "`FILE` to keep the index in (default: a temporary one)")
	f.Var(newNbits(&o.Build.Nbits), "nbits", "residual bits a component")
	f.Var(newInt(&o.Build.Centroids, 0, 0), "centroids", "number of centroids (0: by the number of tokens)")
	f.Uint64Var(&o.Build.Seed, "seed", 0, "`N` that decides every random choice")
	f.VarP(newInt(&o.Search.K, 100, 1), "k", "k", "how many documents to find for a query, at least as many as the measures look at")
	f.Var(newChoice(&mode, "pruned", "pruned", "exhaustive"), "mode", "score the documents that pruning leaves, or all of them")
	f.Var(newInt(&o.Search.Probes, 0, 0), "probes", "centroids to probe for a query token (0: by k)")
	f.Var(newInt(&o.Search.Approx, 0, 0), "approx", "documents that get an approximate score at most (0: by k)")
	f.Var(newInt(&o.Search.Exact, 0, 0), "exact", "documents that get an exact score at most (0: by k)")
	f.Var(newMeasures(&o.Measures, "nDCG@10,R@100,RR@10,AP,Success@5"), "measures", "what to compute, by the names of ir_measures")
	f.BoolVar(&o.Eval.ExcludeSelf, "exclude-self", false, "leave out a hit whose id is that of the query (ArguAna, Quora)")
	f.StringVar(&run, "run", "", "write the results as a TREC run to `FILE`")
	f.Var(newChoice(&format, "table", "table", "json"), "format", "how to print results")
	f.BoolVar(&asJSON, "json", false, "the same as --format json, and errors as JSON")
	work.register(f)
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	cmd.RunE = a.command(func(ctx context.Context, args []string) (err error) {
		if dir == "" {
			return usagef("--vectors is missing")
		}
		if asJSON {
			format = "json"
		}
		if o.Search.Mode, err = search.ParseMode(mode); err != nil {
			return err
		}
		o.Build.Memory, o.Threads = work.memory, work.threads
		o.Build.Backend, o.Build.Logger = a.backend, a.logger()
		o.Open = index.Options{Backend: a.backend, Logger: a.logger()}
		o.Progress = a.progress()
		return a.beir(ctx, args[0], dir, run, format, work, o)
	})
	return cmd
}

func (a *app) beir(ctx context.Context, dir, vectorDir, run, format string, work effort, o beir.Options) (err error) {
	defer work.limit()()
	var r *beir.Report
	err = a.locked(ctx, func(wait time.Duration) (err error) {
		o.Build.LockTimeout, o.Open.LockTimeout = wait, wait
		r, err = beir.Run(ctx, dir, vectorDir, o)
		return err
	})
	if err != nil {
		return err
	}
	if run != "" {
		if err := writeRunFile(run, r.Run); err != nil {
			return err
		}
	}
	if r.Reused {
		a.warn("%s was there already: it was searched as it is", o.Index)
	}
	if r.Unsearched > 0 {
		a.warn("%s no vectors: they count 0", countNoun(r.Unsearched, "judged query has", "judged queries have"))
	}
	if r.QueriesAreDocuments() && !o.Eval.ExcludeSelf {
		a.warn("%s of %s has its own id first: the queries are documents, as in ArguAna, for which measures are published with --exclude-self",
			formatCount(r.Result.SelfFirst), countNoun(r.Result.Count(eval.AverageEvaluated), "query", "queries"))
	}
	if format == "json" {
		measures := map[string]float64{}
		for i, m := range r.Result.Measures {
			measures[m.String()] = r.Result.Means[i]
		}
		line, err := encodeJSON(struct {
			*beir.Report
			Measures map[string]float64 `json:"measures"`
		}{r, measures})
		if err != nil {
			return err
		}
		return a.print(line)
	}
	return a.print(beirTable(r))
}

func writeRunFile(path string, run *eval.Run) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return eval.WriteRun(f, run)
}

func beirTable(r *beir.Report) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s: %s, %s, %s\n\n", r.Collection, r.Split, plural(r.Docs, "document"), plural(r.Tokens, "token"),
		countNoun(r.Queries, "judged query", "judged queries"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, m := range r.Result.Measures {
		fmt.Fprintf(w, "%v\t%.4f\n", m, r.Result.Means[i])
	}
	_ = w.Flush() // to memory
	fmt.Fprintln(&b)
	if r.Missing > 0 {
		fmt.Fprintf(&b, "judged, but not in the index: %s\n", plural(r.Missing, "document"))
	}
	build := "was there"
	if !r.Reused {
		build = "built in " + formatSeconds(r.Seconds.Build)
	}
	fmt.Fprintf(&b, "index:  %s, %s\n", formatBytes(r.Bytes), build)
	n := r.Stats.Queries
	fmt.Fprintf(&b, "search: k = %d, %s in %s, %.0f a second; of one p50 %.2f ms, p95 %.2f ms\n", r.K, countNoun(n, "query", "queries"),
		formatSeconds(r.Seconds.Search), float64(n)/r.Seconds.Search, milliseconds(r.Latency.P50), milliseconds(r.Latency.P95))
	fmt.Fprintf(&b, "all:    %s\n", formatSeconds(r.Seconds.Total))
	return b.Bytes()
}
