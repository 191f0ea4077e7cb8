package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/eval"
)

// evalOutput is how plaid eval prints.
type evalOutput struct {
	format   string
	perQuery bool
}

// allQueries stands for the mean where queries have their ids.
const allQueries = "all"

func (o evalOutput) render(e *evalFlags, results []judged) ([]byte, error) {
	switch o.format {
	case "json":
		return encodeJSON(o.object(e, results))
	case "tsv":
		return o.tsv(results), nil
	}
	return o.table(e, results), nil
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

func (o evalOutput) tsv(results []judged) []byte {
	var b bytes.Buffer
	for _, r := range results {
		row := func(query string, values []float64) {
			for i, m := range r.Measures {
				if len(results) > 1 {
					b.WriteString(cell(r.name) + "\t")
				}
				fmt.Fprintf(&b, "%s\t%v\t%s\n", cell(query), m, formatFloat(values[i]))
			}
		}
		if o.perQuery {
			for _, q := range r.counted() {
				row(q.Query, q.Values)
			}
		}
		row(allQueries, r.Means)
	}
	return b.Bytes()
}

// cell keeps a text from ending a column or a line.
func cell(s string) string {
	return strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(s)
}

func (o evalOutput) table(e *evalFlags, results []judged) []byte {
	var b bytes.Buffer
	if o.perQuery {
		o.queryTable(&b, e, results)
	} else {
		meansTable(&b, e, results)
	}
	fmt.Fprintf(&b, "\n%s\n", e.rules())
	for _, r := range results {
		if r.Unjudged > 0 {
			fmt.Fprintf(&b, "%s: %s without judgements, left out.\n", printable(r.name, pathColumn), countNoun(r.Unjudged, "query", "queries"))
		}
	}
	return b.Bytes()
}

// meansTable has a row for each run.
func meansTable(b *bytes.Buffer, e *evalFlags, results []judged) {
	t := columns{left: 1}
	head := []string{"RUN", "QUERIES", "MISSING"}
	for _, m := range e.measures {
		head = append(head, m.String())
	}
	t.add(head...)
	for _, r := range results {
		row := []string{printable(r.name, pathColumn), fmt.Sprint(r.Count(r.Average)), fmt.Sprint(r.missing())}
		t.add(append(row, fixed(r.Means)...)...)
	}
	t.write(b)
}

// pathColumn is how much of a path a table shows, in characters.
const pathColumn = 60

// rules says what the means are of.
func (e *evalFlags) rules() string {
	s := "Means over all judged queries; one missing from the run counts 0."
	switch e.average {
	case eval.AverageEvaluated:
		s = "Means over the judged queries that the run has."
	case eval.AverageRelevant:
		s = "Means over all queries with a relevant document; one missing from the run counts 0."
	}
	s += " Ties: " + e.ties.String() + "."
	if e.excludeSelf {
		s += " Hits with the id of their query are left out."
	}
	return s
}

func (o evalOutput) queryTable(b *bytes.Buffer, e *evalFlags, results []judged) {
	several := len(results) > 1
	t := columns{left: 1}
	head := []string{"QUERY"}
	if several {
		t.left, head = 2, []string{"RUN", "QUERY"}
	}
	for _, m := range e.measures {
		head = append(head, m.String())
	}
	t.add(head...)
	for _, r := range results {
		row := func(query string, values []float64) {
			cells := []string{query}
			if several {
				cells = []string{printable(r.name, pathColumn), query}
			}
			t.add(append(cells, fixed(values)...)...)
		}
		for _, q := range r.counted() {
			row(printable(q.Query, idColumn), q.Values)
		}
		row(allQueries, r.Means)
	}
	t.write(b)
}

// fixed are values as tables show them.
func fixed(values []float64) []string {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = fmt.Sprintf("%.4f", v)
	}
	return cells
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

func (o evalOutput) object(e *evalFlags, results []judged) evalJSON {
	x := evalJSON{Qrels: e.qrels, Average: e.average.String(), Ties: e.ties.String(), ExcludeSelf: e.excludeSelf}
	for _, m := range e.measures {
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

// columns are lines of text whose columns are lined up, the first left ones to the
// left and the others, numbers, to the right.
type columns struct {
	left int
	rows [][]string
}

func (t *columns) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *columns) write(b *bytes.Buffer) {
	var wide []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			if i < t.left {
				fmt.Fprintf(&line, "%-*s", wide[i], c)
			} else {
				fmt.Fprintf(&line, "%*s", wide[i], c)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
