package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// intsValue is a list of whole numbers of at least min.
type intsValue struct {
	p   *[]int
	min int
}

func newInts(p *[]int, min int, def ...int) *intsValue {
	*p = def
	return &intsValue{p, min}
}

func (v *intsValue) Set(s string) error {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		n := 0
		if err := (&intValue{&n, v.min}).Set(strings.TrimSpace(part)); err != nil {
			return err
		}
		list = append(list, n)
	}
	*v.p = list
	return nil
}

func (v *intsValue) String() string {
	parts := make([]string, len(*v.p))
	for i, n := range *v.p {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}
func (v *intsValue) Type() string { return "LIST" }

// querySet is all queries of a command that measures, in memory.
type querySet struct {
	ids []string
	qs  []search.Query
}

// named puts the id of a query in the place of its number in an error.
func (q *querySet) named(err error) error {
	if failed := (*search.QueryError)(nil); errors.As(err, &failed) && failed.Index < len(q.ids) {
		return fmt.Errorf("query %q: %w", q.ids[failed.Index], failed.Err)
	}
	return err
}

// measure opens an index and reads all queries for use.
func (a *app) measure(ctx context.Context, path string, files *queryFiles, use func(*index.Snapshot, *querySet) error) (err error) {
	queries, err := files.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queries.Close()) }()
	return a.openSnapshot(ctx, path, func(_ *index.Index, snap *index.Snapshot) error {
		if err := checkQueries(files.vectors, queries, snap); err != nil {
			return err
		}
		if queries.Len() == 0 {
			return fmt.Errorf("%s: %w: there are none", files.vectors, search.ErrQuery)
		}
		qs, ids, err := readQueries(ctx, queries, 0, queries.Len())
		if err != nil {
			return err
		}
		set := &querySet{ids, qs}
		return set.named(use(snap, set))
	})
}

// benchFlags say what plaid bench measures and where that goes.
type benchFlags struct {
	queries               queryFiles
	qrels                 evalFlags
	k, threads            int
	warmup, repeat        int
	probes, approx, exact []int
	format                string
	jsonFile, csv, svg    string
}

func (b *benchFlags) register(f *pflag.FlagSet) {
	b.queries.register(f)
	f.VarP(newInt(&b.k, 10, 1), "k", "k", "how many documents to return for a query")
	f.StringVar(&b.qrels.qrels, "qrels", "", "`FILE` of judgements, or the folder of a BEIR collection: adds nDCG@10")
	f.StringVar(&b.qrels.split, "split", "", "`NAME` of the judgements in a folder: qrels/NAME.tsv (default test)")
	f.BoolVar(&b.qrels.excludeSelf, "exclude-self", false, "leave a hit whose id is that of the query out of nDCG@10 (ArguAna, Quora)")
	f.Var(newInts(&b.probes, 0, 1, 2, 4, 8, 16, 32), "probes", "centroids to probe for a query token (0: derived)")
	f.Var(newInts(&b.approx, 0, 0), "approx", "documents that get an approximate score at most (0: derived)")
	f.Var(newInts(&b.exact, 0), "exact", "documents that get an exact score at most (0: derived; default 0 and 1, 2, 4, 8 times k)")
	f.Var(newInt(&b.threads, 1, 0), "threads", "goroutines (0: one a processor)")
	f.Var(newInt(&b.warmup, 10, 0), "warmup", "queries before the clock runs, for each setting")
	f.Var(newInt(&b.repeat, 1, 1), "repeat", "passes over the queries")
	f.Var(newChoice(&b.format, "table", "table", "json", "csv"), "format", "how to print results")
	f.StringVar(&b.jsonFile, "json-file", "", "write the results as JSON to `FILE` too")
	f.StringVar(&b.csv, "csv", "", "write them as CSV to `FILE` too")
	f.StringVar(&b.svg, "svg", "", "draw recall against latency into `FILE`")
}

func (a *app) benchCommand() *cobra.Command {
	var b benchFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench INDEX --queries FILE",
		Short: "Measure speed against recall over search parameters",
		Long: withExitStatus(`
Search the same queries with every combination of --probes, --approx and
--exact, with the parameters that are derived and those that plaid tune stored,
and exhaustively. For each setting print latency, queries a second, recall and,
with --qrels, nDCG@10.

Latency is of queries searched one at a time, on --threads goroutines; queries
a second are of all of them handed in at once. Recall is the share of the
exhaustive result over the stored vectors that is found. A * marks the Pareto
front: no other setting is faster, by the median, and finds as much. Results are
of the machine as it is: let nothing else run.`),
		Example: `  plaid bench docs.plaid --queries queries.npy
  plaid bench docs.plaid --queries queries.npy --query-ids qids.txt --qrels scifact -k 100 --svg recall.svg
  plaid bench docs.plaid --queries queries.npy --probes 4,8 --exact 0,200,400 --format csv > bench.csv`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	b.register(f)
	f.BoolVar(&asJSON, "json", false, "the same as --format json, and errors as JSON")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if asJSON {
			b.format = "json"
		}
		if b.exact == nil {
			b.exact = []int{0, b.k, 2 * b.k, 4 * b.k, 8 * b.k}
		}
		return a.bench(ctx, args[0], &b)
	})
	return cmd
}

func (a *app) bench(ctx context.Context, path string, b *benchFlags) error {
	var qrels *eval.Qrels
	if b.qrels.qrels != "" {
		var err error
		if qrels, err = b.qrels.load(ctx); err != nil {
			return err
		}
	} else if b.qrels.split != "" {
		return usagef("--split goes with --qrels")
	}
	return a.measure(ctx, path, &b.queries, func(snap *index.Snapshot, set *querySet) error {
		engine := search.NewAt(snap, b.threads)
		o := search.SweepOptions{K: b.k, Warmup: b.warmup, Repeat: b.repeat, Progress: a.progress()}
		if b.warmup == 0 {
			o.Warmup = -1
		}
		stored, err := storedSetting(snap, b.k)
		if err != nil {
			return err
		}
		o.Settings = []search.Setting{{}}
		if stored != nil && !slices.Contains(o.Settings, *stored) {
			o.Settings = append(o.Settings, *stored)
		}
		for _, s := range search.Grid(b.k, snap.Header().Centroids, b.probes, b.approx, b.exact) {
			if !slices.Contains(o.Settings, s) {
				o.Settings = append(o.Settings, s)
			}
		}
		o.Settings = append(o.Settings, search.Setting{Exhaustive: true})
		if qrels != nil {
			if o.Judge, err = judgeWith(qrels, b.qrels.options(), set.ids); err != nil {
				return err
			}
		}
		points, err := engine.Sweep(ctx, set.qs, o, nil)
		if err != nil {
			return err
		}
		state := snap.State()
		r := &benchReport{
			Index: path, Backend: snap.Backend(), Threads: b.threads, K: b.k, Queries: len(set.qs),
			Docs: state.Live, Tokens: state.LiveTokens, Points: points, stored: stored,
		}
		if qrels != nil {
			r.Measure = judgeMeasure
		}
		return a.writeBench(r, b)
	})
}

// storedSetting is what the index has stored for searches of k; nil without.
func storedSetting(snap *index.Snapshot, k int) (*search.Setting, error) {
	d, err := snap.Defaults()
	if err != nil || d == nil {
		return nil, err
	}
	c, ok := d.For(k)
	if !ok {
		return nil, nil
	}
	return &search.Setting{Probes: c.Probes, Approx: c.Approx, Exact: c.Exact}, nil
}

// judgeMeasure is what plaid bench computes from judgements.
const judgeMeasure = "nDCG@10"

// judgeWith returns a function that evaluates the results of these queries. A
// query without a judgement takes no part, nor does a judgement of another query.
func judgeWith(qrels *eval.Qrels, o eval.Options, ids []string) (func([]search.Result) (float64, error), error) {
	m, err := eval.ParseMeasures(judgeMeasure)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(ids, qrels.Judged) {
		return nil, fmt.Errorf("none of the queries is judged: their ids are %q and so on, those of the judgements %q; see --query-ids", ids[0], qrels.Queries()[0])
	}
	o.Average = eval.AverageEvaluated
	return func(results []search.Result) (float64, error) {
		run := &eval.Run{}
		for i, r := range results {
			if err := addHits(run, ids[i], r.Hits); err != nil {
				return 0, err
			}
		}
		res, err := eval.Evaluate(qrels, run, m, o)
		if err != nil {
			return 0, err
		}
		return res.Means[0], nil
	}, nil
}

func addHits(run *eval.Run, query string, hits []search.Hit) error {
	list := make([]eval.Hit, len(hits))
	for j, h := range hits {
		list[j] = eval.Hit{Doc: h.ID, Score: float64(h.Score), Rank: j + 1}
	}
	return run.Add(query, list...)
}

func (a *app) writeBench(r *benchReport, b *benchFlags) error {
	json, err := encodeJSON(r)
	if err != nil {
		return err
	}
	csv, err := r.csv()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		make func() ([]byte, error)
	}{
		{b.jsonFile, func() ([]byte, error) { return json, nil }},
		{b.csv, func() ([]byte, error) { return csv, nil }},
		{b.svg, r.svg},
	} {
		if f.path == "" {
			continue
		}
		text, err := f.make()
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.path, text, 0o666); err != nil {
			return err
		}
	}
	switch b.format {
	case "json":
		return a.print(json)
	case "csv":
		return a.print(csv)
	}
	return a.print(r.table())
}
