package command

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
)

func (a *app) evalCommand() *cobra.Command {
	var e flags.Judging
	var o evalOutput
	cmd := &cobra.Command{
		Use:   "eval --qrels FILE RUN…",
		Short: "Measure runs against judgements",
		Long: `
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
"all" at the end; json is one object.`,
		Example: `  plaid eval --qrels scifact run.trec
  plaid eval --qrels qrels.trec --measures nDCG@10,AP(rel=2),R@1000 bm25.run plaid.run.gz
  plaid eval --qrels arguana --exclude-self --per-query --format tsv run.trec > values.tsv`,
		Args: takes("RUN", "RUN…"),
	}
	f := cmd.Flags()
	e.Register(f)
	o.format.Register(cmd, "values", "table", "tsv", "json")
	f.BoolVar(&o.perQuery, "per-query", false, "print the values of each query, before the means")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		return a.eval(ctx, &e, o, args)
	})
	return cmd
}

func (a *app) eval(ctx context.Context, e *flags.Judging, o evalOutput, paths []string) error {
	qrels, err := e.Load(ctx)
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

// evalOutput is how plaid eval prints.
type evalOutput struct {
	format   flags.Format
	perQuery bool
}

func (o evalOutput) render(e *flags.Judging, results []judged) ([]byte, error) {
	switch o.format.Word() {
	case "json":
		return out.Typed("eval", o.object(e, results))
	case "tsv":
		return o.tsv(results), nil
	}
	return o.table(e, results), nil
}

func (o evalOutput) tsv(results []judged) []byte {
	var b bytes.Buffer
	for _, r := range results {
		lines := func(query string, values []float64) {
			for i, m := range r.Measures {
				if len(results) > 1 {
					b.WriteString(out.Field(r.name) + "\t")
				}
				fmt.Fprintf(&b, "%s\t%v\t%s\n", out.Field(query), m, out.Float(values[i]))
			}
		}
		if o.perQuery {
			for _, q := range r.counted() {
				lines(q.Query, q.Values)
			}
		}
		lines(allQueries, r.Means)
	}
	return b.Bytes()
}

func (o evalOutput) table(e *flags.Judging, results []judged) []byte {
	var b bytes.Buffer
	if o.perQuery {
		o.queryTable(&b, e, results)
	} else {
		meansTable(&b, e, results)
	}
	fmt.Fprintf(&b, "\n%s\n", meansRules(e))
	for _, r := range results {
		if r.Unjudged > 0 {
			fmt.Fprintf(&b, "%s: %s without judgements, left out.\n", out.Path(r.name), out.Queries(r.Unjudged))
		}
	}
	return b.Bytes()
}

func (o evalOutput) queryTable(b *bytes.Buffer, e *flags.Judging, results []judged) {
	several := len(results) > 1
	t := out.Table{Left: 1}
	head := []string{"QUERY"}
	if several {
		t.Left, head = 2, []string{"RUN", "QUERY"}
	}
	for _, m := range e.Measures {
		head = append(head, m.String())
	}
	t.Line(head...)
	for _, r := range results {
		row := func(query string, values []float64) {
			cells := []string{query}
			if several {
				cells = []string{out.Path(r.name), query}
			}
			t.Line(append(cells, fixed(values)...)...)
		}
		for _, q := range r.counted() {
			row(out.ID(q.Query), q.Values)
		}
		row(allQueries, r.Means)
	}
	t.Print(b)
}

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
	PerQuery []evalQueryJSON    `json:"per_query,omitempty"`
}

type evalQueryJSON struct {
	Query             string             `json:"query"`
	InRun             bool               `json:"in_run"`
	Retrieved         int                `json:"retrieved"`
	Relevant          int                `json:"relevant"`
	RelevantRetrieved int                `json:"relevant_retrieved"`
	Values            map[string]float64 `json:"values"`
}

func (o evalOutput) object(e *flags.Judging, results []judged) evalJSON {
	x := evalJSON{Qrels: e.Qrels, Average: e.Average.String(), Ties: e.Ties.String(), ExcludeSelf: e.ExcludeSelf}
	for _, m := range e.Measures {
		x.Measures = append(x.Measures, m.String())
	}
	byName := func(values []float64) map[string]float64 {
		m := make(map[string]float64, len(values))
		for i, v := range values {
			m[x.Measures[i]] = v
		}
		return m
	}
	for _, r := range results {
		run := evalRunJSON{
			Run: r.name, Tag: r.run.Tag, Queries: r.Count(r.Average), Missing: r.missing(), Unjudged: r.Unjudged,
			Means: byName(r.Means),
		}
		if o.perQuery {
			for _, q := range r.counted() {
				run.PerQuery = append(run.PerQuery, evalQueryJSON{
					q.Query, q.InRun, q.Retrieved, q.Relevant, q.RelevantRetrieved, byName(q.Values),
				})
			}
		}
		x.Runs = append(x.Runs, run)
	}
	return x
}
