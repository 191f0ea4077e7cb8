package command

import (
	"bytes"
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/files"
)

// judged is a run with its evaluation.
type judged struct {
	name string // the path
	run  *eval.Run
	*eval.Result
}

// judge evaluates runs.
func (a *app) judge(ctx context.Context, e *flags.Judging, qrels *eval.Qrels, paths []string, runs []*eval.Run) ([]judged, error) {
	results := make([]judged, len(runs))
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
			return nil, fmt.Errorf("%s: none of its queries (%d) is judged in %s (%d)", paths[i], run.Len(), e.Qrels, qrels.Len())
		}
		if 2*res.SelfFirst > evaluated && !e.ExcludeSelf {
			a.warn("%s: the first hit has the id of the query for %d of %s; if queries are documents, --exclude-self leaves it out",
				paths[i], res.SelfFirst, out.Queries(evaluated))
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

// counted are the queries that the mean runs over.
func (r judged) counted() []eval.QueryResult {
	var queries []eval.QueryResult
	for _, q := range r.Queries {
		if q.Included(r.Average) {
			queries = append(queries, q)
		}
	}
	return queries
}

// missing is how many judged queries the run lacks.
func (r judged) missing() int { return len(r.Queries) - r.Count(eval.AverageEvaluated) }

// meansTable has a row for each run.
func meansTable(b *bytes.Buffer, e *flags.Judging, results []judged) {
	t := out.Table{Left: 1}
	head := []string{"RUN", "QUERIES", "MISSING"}
	for _, m := range e.Measures {
		head = append(head, m.String())
	}
	t.Line(head...)
	for _, r := range results {
		row := []string{out.Path(r.name), fmt.Sprint(r.Count(r.Average)), fmt.Sprint(r.missing())}
		t.Line(append(row, fixed(r.Means)...)...)
	}
	t.Print(b)
}

// meansRules says what the means are of.
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

// fixed are values as tables show them.
func fixed(values []float64) []string {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = out.Fixed(v)
	}
	return cells
}

// allQueries stands for the mean where queries have their ids.
const allQueries = "all"
