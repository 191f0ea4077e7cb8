package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/plaid-ir/plaid/eval/plot"
	"github.com/plaid-ir/plaid/search"
)

// benchReport is what plaid bench measured.
type benchReport struct {
	Index   string         `json:"index"`
	Docs    uint32         `json:"docs"`
	Tokens  uint64         `json:"tokens"`
	Backend string         `json:"backend"`
	Threads int            `json:"threads"` // 0: one a processor
	K       int            `json:"k"`
	Queries int            `json:"queries"`
	Measure string         `json:"measure,omitempty"` // of the values of points
	Points  []search.Point `json:"points"`

	stored *search.Setting
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *benchReport) table() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s, %s, %s; k = %d, %s\n\n", r.Index, plural(r.Docs, "document"), plural(r.Tokens, "token"),
		countNoun(r.Queries, "query", "queries"), r.K, r.threads())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tprobes\tapprox\texact\tp50 ms\tp95 ms\tp99 ms\tqueries/s\t", "recall@", r.K, "\t")
	if r.Measure != "" {
		fmt.Fprint(w, r.Measure, "\t")
	}
	fmt.Fprintln(w)
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.3f\t%.3f\t%.3f\t%.1f\t%.4f\t", mark, budget(p.Probes), budget(p.Approx), budget(p.Exact),
			milliseconds(p.Latency.P50), milliseconds(p.Latency.P95), milliseconds(p.Latency.P99), p.QPS, p.Recall)
		if p.Value != nil {
			fmt.Fprintf(w, "%.4f\t", *p.Value)
		}
		fmt.Fprintln(w, r.remark(p.Setting))
	}
	_ = w.Flush() // to memory
	b.WriteString("\n* Pareto front    · derived for each query\n")
	return b.Bytes()
}

func (r *benchReport) remark(s search.Setting) string {
	switch {
	case r.stored != nil && s == *r.stored:
		return "  stored"
	case s == (search.Setting{}):
		return "  untuned"
	case s.Exhaustive:
		return "  exhaustive"
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
		ms := func(d time.Duration) string { return formatFloat(milliseconds(d)) }
		mean := func(n int64) string { return formatFloat(float64(n) / float64(max(p.Stats.Queries, 1))) }
		row := []string{strconv.Itoa(p.Probes), strconv.Itoa(p.Approx), strconv.Itoa(p.Exact), strconv.FormatBool(p.Exhaustive), strconv.FormatBool(p.Pareto),
			formatFloat(p.Recall), ms(p.Latency.Mean), ms(p.Latency.P50), ms(p.Latency.P95), ms(p.Latency.P99), ms(p.Latency.Max), formatFloat(p.QPS),
			mean(p.Stats.Candidates), mean(p.Stats.ApproxTokens), mean(p.Stats.ExactDocs), mean(p.Stats.ExactTokens)}
		if p.Value != nil {
			row = append(row, formatFloat(*p.Value))
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
		Subtitle: fmt.Sprintf("%s: %s, %s; %s, %s", filepath.Base(r.Index), plural(r.Docs, "document"), plural(r.Tokens, "token"),
			countNoun(r.Queries, "query", "queries"), r.threads()),
		X: plot.Axis{Label: "latency of a query, median (ms)", Scale: plot.Log},
		Y: plot.Axis{Label: fmt.Sprintf("recall@%d of exhaustive search", r.K), Scale: plot.Nines},
	}
	at := func(p search.Point) plot.Point {
		title := fmt.Sprintf("%v: %.3f ms, recall %.4f", p.Setting, milliseconds(p.Latency.P50), p.Recall)
		return plot.Point{X: milliseconds(max(p.Latency.P50, 1)), Y: p.Recall, Title: title}
	}
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
		case p.Setting == (search.Setting{}):
			name, line = "untuned", false
		case p.Exact == 0:
			name = "exact derived"
		case p.Probes == 0:
			name = "probes derived"
		default:
			name = countNoun(p.Probes, "probe", "probes")
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
