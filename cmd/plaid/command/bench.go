package command

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// benchFlags holds the flags of plaid bench.
type benchFlags struct {
	queries    flags.Queries
	judging    flags.Judging
	efforts    flags.Efforts
	originals  flags.Documents
	k, threads int
	repeat     int
	perQuery   bool
	format     flags.Format
	device     flags.Device
}

func (b *benchFlags) register(f *pflag.FlagSet) {
	b.queries.Register(f)
	f.VarP(flags.Int(&b.k, 10, 1), "k", "k", "how many documents to return for a query")
	b.judging.RegisterOptional(f, judgeMeasure)
	b.efforts.Register(f)
	flags.Threads(f, &b.threads, 1)
	b.device.RegisterSearching(f)
	f.Var(flags.Int(&b.repeat, 1, 1), "repeat", "passes over the queries")
	b.originals.RegisterOriginals(f, "measures what compression loses")
	f.BoolVar(&b.perQuery, "per-query", false, "print what each query misses, and where it was lost")
}

func (a *app) benchCommand() *cobra.Command {
	var b benchFlags
	var names indexNames
	cmd := &cobra.Command{
		Use:   "bench INDEX {--questions FILE | --queries FILE}",
		Short: "Measure speed, and what pruning and compression lose",
		Long: `
Search the same queries with the derived parameters, with those that plaid tune has
stored, exhaustively, and with every combination of --probes, --approx and --exact. For
each setting, print latency, queries a second, recall and, with --qrels, nDCG@10.

Latency is measured with one query at a time, on --threads goroutines; queries a
second are measured with all queries at once. Recall is the share of the exhaustive
result over the stored vectors that is found. A * marks the Pareto front: no other
setting has both a lower median latency and the same recall. Run nothing else on the
machine meanwhile.

Then two losses are shown, separately. Pruning concerns the setting that searches use,
stored or derived, or the only one that flags name. Each missing document is traced to
the stage that lost it: not probed (none of its centroids was probed), cut (beyond the
approximate budget), pruned (beyond the exact budget, by approximate score), or
outranked (scored exactly; another document has the same score up to rounding).
Compression is measured with --vectors: the share of the exact result, MaxSim over the
original vectors in float32, that exhaustive search over the stored vectors returns,
and by how much the scores of the exact result differ.

` + severalHelp + ` Compression
is measured on one index.`,
		Example: `  plaid bench docs.plaid --queries queries.npy
  plaid bench docs.plaid --queries queries.npy --vectors docs.npy --lengths doclens.npy --ids ids.txt
  plaid bench docs.plaid --queries queries.npy --query-ids qids.txt --qrels scifact -k 100
  plaid bench docs.plaid --queries queries.npy --probes 1,2,4,8 --exact 0,200,400 --json > bench.json`,
		Args: namedArgs("INDEX"),
	}
	f := cmd.Flags()
	b.register(f)
	names.register(f)
	b.format.Register(cmd, "results", "table", "json")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		return a.runBench(ctx, &names, args[0], &b)
	})
	return cmd
}

// runBench measures the searches of an index with several settings, and what pruning and
// compression lose.
func (a *app) runBench(ctx context.Context, names *indexNames, path string, b *benchFlags) error {
	qrels, err := b.judging.LoadIfGiven(ctx)
	if err != nil {
		return err
	}
	return a.openForMeasuring(ctx, names, path, &b.queries, b.threads, &b.device, &b.device,
		func(e searcher, target *searchTarget, set *querySet) error {
			snap := target.snap
			engine, singleIndex := e.(*search.Engine)
			if !singleIndex && len(b.originals.Vectors) > 0 {
				return flags.Usagef("--vectors: compression is measured on one index")
			}
			// Measure the derived parameters, the stored ones, those of the flags, and exhaustive search.
			o := quality.SweepOptions{K: b.k, Repeat: b.repeat, Progress: a.progress()}
			stored, err := storedSetting(target.shards, b.k)
			if err != nil {
				return err
			}
			requested := b.efforts.Settings(b.k, snap.Header().Centroids)
			measured := quality.Setting{}
			if stored != nil {
				measured = *stored
			}
			settings := append([]quality.Setting{{}, measured}, requested...)
			if len(requested) == 1 {
				measured = requested[0]
			}
			for _, s := range append(settings, quality.Setting{Exhaustive: true}) {
				if !slices.Contains(o.Settings, s) {
					o.Settings = append(o.Settings, s)
				}
			}
			if qrels != nil {
				if o.Judge, err = newJudge(qrels, b.judging.Options, set.ids); err != nil {
					return err
				}
			}
			// Recall is measured against the exhaustive result.
			reference, err := quality.Reference(ctx, e, set.queries, b.k, o.Progress)
			if err != nil {
				return err
			}
			points, err := quality.Sweep(ctx, e, set.queries, o, reference)
			if err != nil {
				return err
			}
			r := &benchReport{
				Index:   path,
				Backend: snap.Backend(),
				Threads: b.threads,
				K:       b.k,
				Queries: len(set.queries),
				Points:  points,
				stored:  stored,
				losses:  losses{ids: set.ids, perQuery: b.perQuery},
			}
			if err := r.measure(ctx, a, e, engine, snap, set, b, measured, reference); err != nil {
				return err
			}
			// Add up the sizes of all files.
			for _, shard := range target.shards {
				state := shard.State()
				r.Docs += int64(state.Documents())
				r.Passages += int64(state.Passages)
				r.Tokens += state.LiveTokens
			}
			if qrels != nil {
				r.Measure = judgeMeasure
			}
			return a.reportFormatted(&b.format, r, r.textTable)
		})
}

// storedSetting returns the parameters that the indexes have stored for searches for k documents;
// nil if they have none, or not all the same.
func storedSetting(snaps []*index.Snapshot, k int) (first *quality.Setting, err error) {
	for i, snap := range snaps {
		d, err := snap.Defaults()
		if err != nil || d == nil {
			return nil, err
		}
		c, ok := d.ClassFor(k)
		s := settingFromDefaults(c)
		if !ok || i > 0 && s != *first {
			return nil, nil
		}
		first = &s
	}
	return first, nil
}

// settingFromDefaults converts stored parameters to a setting that can be measured.
func settingFromDefaults(c storage.DefaultClass) quality.Setting {
	return quality.Setting{
		Probes: c.Probes,
		Approx: c.Approx,
		Exact:  c.Exact,
		Effort: c.Effort,
		Scan:   c.Scan,
	}
}

// judgeMeasure is the measure that plaid bench computes from judgements.
const judgeMeasure = "nDCG@10"

// newJudge returns a function that computes [judgeMeasure] for results of the queries with these
// ids. Queries without judgements, and judgements of other queries, do not count.
func newJudge(qrels *eval.Qrels, o eval.Options, ids []string) (func([]search.Result) (float64, error), error) {
	m, err := eval.ParseMeasures(judgeMeasure)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(ids, qrels.Judged) {
		return nil, fmt.Errorf("none of the queries is judged: their ids are %q and so on, those of the "+
			"judgements %q; see --query-ids", ids[0], qrels.Queries()[0])
	}
	o.Average = eval.AverageEvaluated
	return func(results []search.Result) (float64, error) {
		run := &eval.Run{}
		for i, r := range results {
			if err := beir.AddHits(run, ids[i], r.Hits); err != nil {
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

// benchReport is what plaid bench prints.
type benchReport struct {
	Index    string          `json:"index"`
	Docs     int64           `json:"docs"`
	Passages int64           `json:"passages"`
	Tokens   uint64          `json:"tokens"`
	Backend  string          `json:"backend"`
	Threads  int             `json:"threads"` // 0 means one for each processor
	K        int             `json:"k"`
	Queries  int             `json:"queries"`
	Measure  string          `json:"measure,omitempty"` // the measure that Points have values of
	Points   []quality.Point `json:"points"`
	losses

	stored *quality.Setting
}

// textTable formats the report for reading.
func (r *benchReport) textTable() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s, %s, %s; k = %d, %s\n\n", r.Index, out.Documents(r.Docs, r.Passages),
		out.Plural(r.Tokens, "token"),
		out.Queries(r.Queries), r.K, r.threads())
	t := out.Table{Indent: 2}
	head := []string{"", "probes", "approx", "exact", "p50 ms", "p95 ms", "p99 ms", "queries/s",
		fmt.Sprintf("recall@%d", r.K)}
	if r.Measure != "" {
		head = append(head, r.Measure)
	}
	t.Line(head...)
	for _, p := range r.Points {
		mark := ""
		if p.Pareto {
			mark = "*"
		}
		budget := func(n int) string {
			if p.Exhaustive {
				return "all"
			}
			return parameterText(n)
		}
		ms := func(d time.Duration) string { return fmt.Sprintf("%.3f", out.Milliseconds(d)) }
		probes := budget(p.Probes)
		if p.Scan {
			probes = "scan"
		}
		line := []string{mark, probes, budget(p.Approx), budget(p.Exact),
			ms(p.Latency.P50), ms(p.Latency.P95), ms(p.Latency.P99), fmt.Sprintf("%.1f", p.QPS),
			out.FourDecimals(p.Recall)}
		if p.Value != nil {
			line = append(line, out.FourDecimals(*p.Value))
		}
		t.Line(line...)
		t.Remark(r.remark(p.Setting))
	}
	t.Print(&b)
	b.WriteString("\n* Pareto front    · derived for each query\n\n")
	r.losses.writeTable(&b)
	return b.Bytes()
}

// remark returns the remark that a table has on a setting.
func (r *benchReport) remark(s quality.Setting) string {
	switch {
	case r.stored != nil && s == *r.stored:
		return "stored"
	case s == (quality.Setting{}):
		return "untuned"
	case s.Exhaustive:
		return "exhaustive"
	}
	return ""
}

// threads describes the number of threads in words.
func (r *benchReport) threads() string {
	if r.Threads == 0 {
		return "a thread a processor"
	}
	return out.Plural(r.Threads, "thread")
}
