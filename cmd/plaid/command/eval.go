package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/files"
)

func (a *app) evalCommand() *cobra.Command {
	var e flags.Judging
	var o evalOutput
	cmd := &cobra.Command{
		Use:   "eval --qrels FILE RUN…",
		Short: "Measure runs against judgements, and compare them",
		Long: `
Compute measures of ranking for runs (TREC's six columns; or query, document,
rank and perhaps score; plain, .gz, .zst or .xz; - is stdin). Values are those of
trec_eval; names are those of ir_measures:

  nDCG@10  nDCG(dcg='exp-log2')@10    gain: the grade, or 2^grade − 1
  AP  AP@100  RR  RR@10               also MAP, MRR
  R@100  P@10  Success@5              also Recall, Precision
  Rprec  Bpref
  Judged@10  Hole@10                  hits with and without a judgement

AP, RR, R, P, Success, Rprec and Bpref take the lowest grade that is relevant,
as in P(rel=2)@10.

If there are several runs, each is compared with the first: the mean difference, the
number of queries where it is better, equal and worse, and p, the probability of such a
difference by chance (Fisher's paired randomisation test, two-sided). Several tests make
a false positive likely, so p is also given after Holm's correction over all runs and
measures. The same input gives the same p.

Formats: table is for reading; tsv has the columns query, measure and value, with a
column for the run before them if there are several, all digits, and the mean as query
"all" at the end; json is one object, which includes the comparisons.`,
		Example: `  plaid eval --qrels scifact run.trec
  plaid eval --qrels qrels.trec --measures nDCG@10,AP(rel=2),R@1000 bm25.run plaid.run.gz
  plaid eval --qrels arguana --exclude-self --per-query --format tsv run.trec > values.tsv`,
		Args: namedArgs("RUN", "RUN…"),
	}
	f := cmd.Flags()
	e.Register(f)
	o.format.Register(cmd, "values", "table", "tsv", "json")
	f.BoolVar(&o.perQuery, "per-query", false, "print the values of each query, before the means")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		return a.evaluateRuns(ctx, &e, o, args)
	})
	return cmd
}

// evaluateRuns measures the runs, compares the later ones with the first, and prints the result.
func (a *app) evaluateRuns(ctx context.Context, e *flags.Judging, o evalOutput, paths []string) error {
	qrels, err := e.Load(ctx)
	if err != nil {
		return err
	}
	runs, err := a.loadRuns(ctx, paths)
	if err != nil {
		return err
	}
	results, err := a.judgeRuns(ctx, e, qrels, paths, runs)
	if err != nil {
		return err
	}
	var comparisons [][]eval.Comparison
	if len(results) > 1 {
		others := make([]*eval.Result, len(results)-1)
		for i := range others {
			others[i] = results[i+1].Result
		}
		if comparisons, err = eval.CompareAll(ctx, results[0].Result, others,
			eval.CompareOptions{Average: e.Average}); err != nil {
			switch {
			case errors.Is(err, eval.ErrTooFewPairs), errors.Is(err, eval.ErrUnpaired):
				a.printWarning("the runs are not compared: %v", err)
			default:
				return err
			}
		}
	}
	if o.format.Word() == "tsv" {
		return a.writeOutput(o.tsvLines(results))
	}
	return a.reportFormatted(&o.format, o.jsonReport(e, results, comparisons),
		func() []byte { return o.textTable(e, results, comparisons) })
}

// evalOutput says how plaid eval prints.
type evalOutput struct {
	format   flags.Format
	perQuery bool
}

// tsvLines formats the values as lines of tab-separated fields.
func (o evalOutput) tsvLines(results []judgedRun) []byte {
	var b bytes.Buffer
	for _, r := range results {
		addLines := func(query string, values []float64) {
			for i, m := range r.Measures {
				if len(results) > 1 {
					b.WriteString(out.TabField(r.name) + "\t")
				}
				fmt.Fprintf(&b, "%s\t%v\t%s\n", out.TabField(query), m, out.Float(values[i]))
			}
		}
		if o.perQuery {
			for _, q := range r.averagedQueries() {
				addLines(q.Query, q.Values)
			}
		}
		addLines(allQueries, r.Means)
	}
	return b.Bytes()
}

// textTable formats the values and the comparisons for reading.
func (o evalOutput) textTable(e *flags.Judging, results []judgedRun, comparisons [][]eval.Comparison) []byte {
	var b bytes.Buffer
	if o.perQuery {
		o.queryTable(&b, e, results)
	} else {
		meansTable(&b, e, results)
	}
	for i, measures := range comparisons {
		fmt.Fprintf(&b, "\n%s against %s\n", out.TablePath(results[i+1].name), out.TablePath(results[0].name))
		t := out.Table{LeftColumns: 1}
		t.Line("MEASURE", "DIFFERENCE", "WINS", "TIES", "LOSSES", "P", "HOLM")
		for _, c := range measures {
			t.Line(c.Measure.String(), signedDifference(c.Difference), fmt.Sprint(c.Wins), fmt.Sprint(c.Ties),
				fmt.Sprint(c.Losses), probability(c.P), probability(c.Holm))
		}
		t.Print(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", meansRules(e))
	for _, r := range results {
		if r.Unjudged > 0 {
			fmt.Fprintf(&b, "%s: %s without judgements, left out.\n", out.TablePath(r.name), out.Queries(r.Unjudged))
		}
	}
	return b.Bytes()
}

// queryTable writes a table of the values of each query.
func (o evalOutput) queryTable(b *bytes.Buffer, e *flags.Judging, results []judgedRun) {
	several := len(results) > 1
	t := out.Table{LeftColumns: 1}
	head := []string{"QUERY"}
	if several {
		t.LeftColumns, head = 2, []string{"RUN", "QUERY"}
	}
	for _, m := range e.Measures {
		head = append(head, m.String())
	}
	t.Line(head...)
	for _, r := range results {
		addRow := func(query string, values []float64) {
			cells := []string{query}
			if several {
				cells = []string{out.TablePath(r.name), query}
			}
			t.Line(append(cells, fourDecimals(values)...)...)
		}
		for _, q := range r.averagedQueries() {
			addRow(out.TableID(q.Query), q.Values)
		}
		addRow(allQueries, r.Means)
	}
	t.Print(b)
}

// evalJSON is what `plaid eval --format json` prints.
type evalJSON struct {
	Qrels       string        `json:"qrels"`
	Average     string        `json:"average"`
	Ties        string        `json:"ties"`
	ExcludeSelf bool          `json:"exclude_self"`
	Measures    []string      `json:"measures"`
	Runs        []evalRunJSON `json:"runs"`
}

type evalRunJSON struct {
	Run      string             `json:"run"`
	Tag      string             `json:"tag,omitempty"`
	Queries  int                `json:"queries"`
	Missing  int                `json:"missing"`
	Unjudged int                `json:"unjudged"`
	Means    map[string]float64 `json:"means"`
	// Against compares the run with the first one, by measure; the first run has none.
	Against  map[string]eval.Comparison `json:"against,omitempty"`
	PerQuery []evalQueryJSON            `json:"per_query,omitempty"`
}

type evalQueryJSON struct {
	eval.QueryResult
	Values map[string]float64 `json:"values"`
}

// jsonReport returns the report for JSON.
func (o evalOutput) jsonReport(e *flags.Judging, results []judgedRun, comparisons [][]eval.Comparison) evalJSON {
	report := evalJSON{
		Qrels:       e.Qrels,
		Average:     e.Average.String(),
		Ties:        e.Ties.String(),
		ExcludeSelf: e.ExcludeSelf,
	}
	for _, m := range e.Measures {
		report.Measures = append(report.Measures, m.String())
	}
	byName := func(values []float64) map[string]float64 {
		m := make(map[string]float64, len(values))
		for i, v := range values {
			m[report.Measures[i]] = v
		}
		return m
	}
	for i, r := range results {
		run := evalRunJSON{
			Run:      r.name,
			Tag:      r.run.Tag,
			Queries:  r.Count(r.Average),
			Missing:  r.missing(),
			Unjudged: r.Unjudged,
			Means:    byName(r.Means),
		}
		if o.perQuery {
			for _, q := range r.averagedQueries() {
				run.PerQuery = append(run.PerQuery, evalQueryJSON{q, byName(q.Values)})
			}
		}
		if i > 0 && comparisons != nil {
			run.Against = map[string]eval.Comparison{}
			for _, c := range comparisons[i-1] {
				run.Against[c.Measure.String()] = c
			}
		}
		report.Runs = append(report.Runs, run)
	}
	return report
}

// signedDifference formats a difference with its sign; a difference that rounds to 0 has no sign.
func signedDifference(x float64) string {
	if math.Abs(x) < 0.00005 { // half of the last digit
		return "0.0000"
	}
	return fmt.Sprintf("%+.4f", x)
}

// probability formats a p-value.
func probability(p float64) string {
	if p < 0.0001 {
		return "<0.0001"
	}
	return out.FourDecimals(p)
}

// judgedRun is a run with its evaluation.
type judgedRun struct {
	// name is the path of the run.
	name string
	run  *eval.Run
	*eval.Result
}

// judgeRuns evaluates runs against the judgements.
func (a *app) judgeRuns(ctx context.Context, e *flags.Judging, qrels *eval.Qrels, paths []string,
	runs []*eval.Run) ([]judgedRun, error) {
	results := make([]judgedRun, len(runs))
	for i, run := range runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		res, err := eval.Evaluate(qrels, run, e.Measures, e.Options)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Qrels, err)
		}
		evaluated := res.Count(eval.AverageEvaluated)
		if evaluated == 0 {
			return nil, fmt.Errorf("%s: none of its queries (%d) is judged in %s (%d)", paths[i], run.Len(), e.Qrels,
				qrels.Len())
		}
		if 2*res.SelfFirst > evaluated && !e.ExcludeSelf {
			a.printWarning("%s: the first hit has the id of the query for %d of %s; if queries are documents, "+
				"--exclude-self leaves it out",
				paths[i], res.SelfFirst, out.Queries(evaluated))
		}
		results[i] = judgedRun{paths[i], run, res}
	}
	return results, nil
}

// loadRuns reads runs. The path - means stdin.
func (a *app) loadRuns(ctx context.Context, paths []string) ([]*eval.Run, error) {
	runs := make([]*eval.Run, len(paths))
	stdin := false
	for i, path := range paths {
		var err error
		switch {
		case path != "-":
			runs[i], err = files.Parse(ctx, path, eval.ReadRun)
		case stdin:
			err = flags.Usagef("stdin (-) is one run")
		default:
			stdin = true
			runs[i], err = eval.ReadRun(files.ContextReader(ctx, a.in), "stdin")
		}
		if err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// averagedQueries returns the queries that the means are over.
func (r judgedRun) averagedQueries() []eval.QueryResult {
	var queries []eval.QueryResult
	for _, q := range r.Queries {
		if q.Included(r.Average) {
			queries = append(queries, q)
		}
	}
	return queries
}

// missing returns the number of judged queries that the run lacks.
func (r judgedRun) missing() int { return len(r.Queries) - r.Count(eval.AverageEvaluated) }

// meansTable writes a table with the means of each run.
func meansTable(b *bytes.Buffer, e *flags.Judging, results []judgedRun) {
	t := out.Table{LeftColumns: 1}
	head := []string{"RUN", "QUERIES", "MISSING"}
	for _, m := range e.Measures {
		head = append(head, m.String())
	}
	t.Line(head...)
	for _, r := range results {
		row := []string{out.TablePath(r.name), fmt.Sprint(r.Count(r.Average)), fmt.Sprint(r.missing())}
		t.Line(append(row, fourDecimals(r.Means)...)...)
	}
	t.Print(b)
}

// meansRules says which queries the means are over, and how ties are broken.
func meansRules(e *flags.Judging) string {
	s := "Means over all judged queries; one missing from the run counts 0."
	switch e.Average {
	case eval.AverageEvaluated:
		s = "Means over the judged queries that the run has."
	case eval.AverageRelevant:
		s = "Means over all queries with a relevant document; one missing from the run counts 0."
	}
	s += " Ties: " + e.Ties.String() + "."
	if e.ExcludeSelf {
		s += " Hits with the id of their query are left out."
	}
	return s
}

// fourDecimals formats values as the cells of a table.
func fourDecimals(values []float64) []string {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = out.FourDecimals(v)
	}
	return cells
}

// allQueries stands in the place of a query's id for the mean over all of them.
const allQueries = "all"
