package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/eval/plot"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// benchFlags say what plaid bench measures and where that goes.
type benchFlags struct {
	queries            flags.Queries
	judging            flags.Judging
	efforts            flags.Efforts
	k, threads         int
	warmup, repeat     int
	format             flags.Format
	jsonFile, csv, svg string
	device             flags.Device
}

func (b *benchFlags) register(f *pflag.FlagSet) {
	b.queries.Register(f)
	f.VarP(flags.Int(&b.k, 10, 1), "k", "k", "how many documents to return for a query")
	b.judging.RegisterFor(f, judgeMeasure)
	b.efforts.Register(f)
	flags.Threads(f, &b.threads, 1)
	b.device.RegisterSearch(f)
	f.Var(flags.Int(&b.warmup, 10, 0), "warmup", "queries before the clock runs, for each setting")
	f.Var(flags.Int(&b.repeat, 1, 1), "repeat", "passes over the queries")
	f.StringVar(&b.jsonFile, "json-file", "", "write the results as JSON to `FILE` too")
	f.StringVar(&b.csv, "csv", "", "write them as CSV to `FILE` too")
	f.StringVar(&b.svg, "svg", "", "draw recall against latency into `FILE`")
}

func (a *app) benchCommand() *cobra.Command {
	var b benchFlags
	var names indexes
	cmd := &cobra.Command{
		Use:   "bench INDEX {--queries FILE | --queries-text FILE}",
		Short: "Measure speed against recall over search parameters",
		Long: `
Search the same queries with every combination of --probes, --approx and
--exact, with the parameters that are derived and those that plaid tune stored,
and exhaustively. For each setting print latency, queries a second, recall and,
with --qrels, nDCG@10.

Latency is of queries searched one at a time, on --threads goroutines; queries
a second are of all of them handed in at once. Recall is the share of the
exhaustive result over the stored vectors that is found. A * marks the Pareto
front: no other setting is faster, by the median, and finds as much. Results are
of the machine as it is: let nothing else run.

` + severalHelp,
		Example: `  plaid bench docs.plaid --queries queries.npy
  plaid bench docs.plaid --queries queries.npy --query-ids qids.txt --qrels scifact -k 100 --svg recall.svg
  plaid bench docs.plaid --queries queries.npy --probes 4,8 --exact 0,200,400 --format csv > bench.csv`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	b.register(f)
	names.register(f)
	b.format.Register(cmd, "results", "table", "json", "csv")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if b.efforts.Exact == nil {
			b.efforts.Exact = []int{0, b.k, 2 * b.k, 4 * b.k, 8 * b.k}
		}
		return a.bench(ctx, &names, args[0], &b)
	})
	return cmd
}

func (a *app) bench(ctx context.Context, names *indexes, path string, b *benchFlags) error {
	for flag, path := range map[string]string{"json-file": b.jsonFile, "csv": b.csv, "svg": b.svg} {
		if err := a.checkOutput(flag, path); err != nil {
			return err
		}
	}
	qrels, err := b.judging.LoadIfGiven(ctx)
	if err != nil {
		return err
	}
	return a.measure(ctx, names, path, &b.queries, b.threads, &b.device, &b.device, func(e searcher, x *searched, set *querySet) error {
		snap := x.snap
		o := quality.SweepOptions{K: b.k, Warmup: b.warmup, Repeat: b.repeat, Progress: a.progress()}
		if b.warmup == 0 {
			o.Warmup = -1
		}
		stored, err := storedSetting(x.snapshots(), b.k)
		if err != nil {
			return err
		}
		o.Settings = []quality.Setting{{}}
		if stored != nil && !slices.Contains(o.Settings, *stored) {
			o.Settings = append(o.Settings, *stored)
		}
		for _, s := range quality.Grid(b.k, snap.Header().Centroids, b.efforts.Probes, b.efforts.Approx, b.efforts.Exact) {
			if !slices.Contains(o.Settings, s) {
				o.Settings = append(o.Settings, s)
			}
		}
		o.Settings = append(o.Settings, quality.Setting{Exhaustive: true})
		if qrels != nil {
			if o.Judge, err = judgeWith(qrels, b.judging.Options, set.ids); err != nil {
				return err
			}
		}
		points, err := quality.SweepOf(ctx, e, set.qs, o, nil)
		if err != nil {
			return err
		}
		r := &benchReport{
			Index: path, Backend: snap.Backend(), Threads: b.threads, K: b.k, Queries: len(set.qs), Points: points, stored: stored,
		}
		for _, part := range x.snapshots() {
			state := part.State()
			r.Docs += int64(state.Live)
			r.Tokens += state.LiveTokens
		}
		if qrels != nil {
			r.Measure = judgeMeasure
		}
		return a.writeBench(ctx, r, b)
	})
}

// storedSetting is what the indexes have stored for searches of k, if all have the same;
// nil without.
func storedSetting(snaps []*index.Snapshot, k int) (first *quality.Setting, err error) {
	for i, snap := range snaps {
		d, err := snap.Defaults()
		if err != nil || d == nil {
			return nil, err
		}
		c, ok := d.For(k)
		s := quality.Setting{Probes: c.Probes, Approx: c.Approx, Exact: c.Exact, Effort: c.Effort, Scan: c.Scan}
		if !ok || i > 0 && s != *first {
			return nil, nil
		}
		first = &s
	}
	return first, nil
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

func (a *app) writeBench(ctx context.Context, r *benchReport, b *benchFlags) error {
	json, err := a.line(r)
	if err != nil {
		return err
	}
	csv, err := r.csv()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		flag, path string
		make       func() ([]byte, error)
	}{
		{"json-file", b.jsonFile, func() ([]byte, error) { return json, nil }},
		{"csv", b.csv, func() ([]byte, error) { return csv, nil }},
		{"svg", b.svg, r.svg},
	} {
		if f.path == "" {
			continue
		}
		text, err := f.make()
		if err != nil {
			return err
		}
		err = a.writeFile(ctx, f.flag, f.path, r.Index, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
		if err != nil {
			return err
		}
	}
	switch b.format.Word() {
	case "json":
		return a.print(json)
	case "csv":
		return a.print(csv)
	}
	return a.print(r.table())
}

// benchReport is what plaid bench measured.
type benchReport struct {
	Index   string          `json:"index"`
	Docs    int64           `json:"docs"`
	Tokens  uint64          `json:"tokens"`
	Backend string          `json:"backend"`
	Threads int             `json:"threads"` // 0: one a processor
	K       int             `json:"k"`
	Queries int             `json:"queries"`
	Measure string          `json:"measure,omitempty"` // of the values of points
	Points  []quality.Point `json:"points"`

	stored *quality.Setting
}

func (r *benchReport) table() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s, %s, %s; k = %d, %s\n\n", r.Index, out.Plural(r.Docs, "document"), out.Plural(r.Tokens, "token"),
		out.Queries(r.Queries), r.K, r.threads())
	t := out.Table{Indent: 2}
	head := []string{"", "probes", "approx", "exact", "p50 ms", "p95 ms", "p99 ms", "queries/s", fmt.Sprintf("recall@%d", r.K)}
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
			return derivedOr(n)
		}
		ms := func(d time.Duration) string { return fmt.Sprintf("%.3f", out.Milliseconds(d)) }
		probes := budget(p.Probes)
		if p.Scan {
			probes = "scan"
		}
		line := []string{mark, probes, budget(p.Approx), budget(p.Exact),
			ms(p.Latency.P50), ms(p.Latency.P95), ms(p.Latency.P99), fmt.Sprintf("%.1f", p.QPS), out.Fixed(p.Recall)}
		if p.Value != nil {
			line = append(line, out.Fixed(*p.Value))
		}
		t.Line(line...)
		t.Remark(r.remark(p.Setting))
	}
	t.Print(&b)
	b.WriteString("\n* Pareto front    · derived for each query\n")
	return b.Bytes()
}

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

func (r *benchReport) threads() string {
	switch r.Threads {
	case 0:
		return "a thread a processor"
	case 1:
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", r.Threads)
}

func (r *benchReport) csv() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	head := []string{"probes", "approx", "exact", "exhaustive", "pareto", fmt.Sprintf("recall@%d", r.K), "mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms",
		"queries_per_second", "candidates", "approx_tokens", "exact_docs", "exact_tokens"}
	if r.Measure != "" {
		head = append(head, r.Measure)
	}
	if err := w.Write(head); err != nil {
		return nil, err
	}
	for _, p := range r.Points {
		ms := func(d time.Duration) string { return out.Float(out.Milliseconds(d)) }
		mean := func(n int64) string { return out.Float(float64(n) / float64(max(p.Stats.Queries, 1))) }
		row := []string{strconv.Itoa(p.Probes), strconv.Itoa(p.Approx), strconv.Itoa(p.Exact), strconv.FormatBool(p.Exhaustive), strconv.FormatBool(p.Pareto),
			out.Float(p.Recall), ms(p.Latency.Mean), ms(p.Latency.P50), ms(p.Latency.P95), ms(p.Latency.P99), ms(p.Latency.Max), out.Float(p.QPS),
			mean(p.Stats.Candidates), mean(p.Stats.ApproxTokens), mean(p.Stats.ExactDocs), mean(p.Stats.ExactTokens)}
		if p.Value != nil {
			row = append(row, out.Float(*p.Value))
		}
		if err := w.Write(row); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// svg draws a line for each number of probes, through the exact budgets, one for
// derived exact budgets, through the probes, and the front over them.
func (r *benchReport) svg() ([]byte, error) {
	c := plot.Chart{
		Title: "Recall against latency",
		Subtitle: fmt.Sprintf("%s: %s, %s; %s, %s", filepath.Base(r.Index), out.Plural(r.Docs, "document"), out.Plural(r.Tokens, "token"),
			out.Queries(r.Queries), r.threads()),
		X: plot.Axis{Label: "latency of a query, median (ms)", Scale: plot.Log},
		Y: plot.Axis{Label: fmt.Sprintf("recall@%d of exhaustive search", r.K), Scale: plot.Nines},
	}
	at := func(p quality.Point) plot.Point {
		title := fmt.Sprintf("%v: %.3f ms, recall %.4f", p.Setting, out.Milliseconds(p.Latency.P50), p.Recall)
		return plot.Point{X: out.Milliseconds(max(p.Latency.P50, 1)), Y: p.Recall, Title: title}
	}
	r.withoutOutlier(&c.X)
	front := plot.Series{Name: "Pareto front", Line: true, Strong: true, Mark: plot.Circle}
	for _, p := range r.Points {
		if p.Pareto {
			front.Points = append(front.Points, at(p))
		}
	}
	slices.SortStableFunc(front.Points, func(a, b plot.Point) int { return cmp.Compare(a.X, b.X) })
	c.Series = append(c.Series, front)
	lines := map[string]int{} // number of a series by its name
	for _, p := range r.Points {
		name, line := "", true
		switch {
		case p.Exhaustive:
			name, line = "exhaustive", false
		case r.stored != nil && p.Setting == *r.stored:
			name, line = "tuned", false
		case p.Setting == (quality.Setting{}):
			name, line = "untuned", false
		case p.Exact == 0:
			name = "exact derived"
		case p.Probes == 0:
			name = "probes derived"
		default:
			name = out.Plural(p.Probes, "probe", "probes")
		}
		if p.Approx > 0 && line {
			name += fmt.Sprintf(", approx %d", p.Approx)
		}
		i, ok := lines[name]
		if !ok {
			i = len(c.Series)
			lines[name] = i
			c.Series = append(c.Series, plot.Series{Name: name, Line: line})
		}
		c.Series[i].Points = append(c.Series[i].Points, at(p))
	}
	return c.SVG()
}

// withoutOutlier ends an axis of latencies behind those of budgets, if the exhaustive search
// would take more of it than these: it is left out of the drawing then, and counted there.
func (r *benchReport) withoutOutlier(x *plot.Axis) {
	least, most, all := math.Inf(1), 0., 0.
	for _, p := range r.Points {
		ms := out.Milliseconds(max(p.Latency.P50, 1))
		if p.Exhaustive {
			all = ms
			continue
		}
		least, most = min(least, ms), max(most, ms)
	}
	pad := math.Pow(most/least, .06)
	if least < most && all/most > most/least {
		x.Min, x.Max = least/pad, most*pad
		x.Label += fmt.Sprintf("; exhaustive: %.3g", all)
	}
}
