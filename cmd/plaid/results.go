package main

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/search"
)

// hitWriter prints the results of a batch of queries to stdout.
type hitWriter func(queries []string, results []search.Result) error

func (a *app) newHitWriter(format, tag string, payload bool) (hitWriter, error) {
	switch {
	case payload && format != "jsonl":
		return nil, usagef("--payload goes with --format jsonl")
	case tag == "" || strings.ContainsAny(tag, " \t\r\n\v\f"):
		return nil, usagef("--tag %q: a tag is one word", tag)
	}
	switch format {
	case "jsonl":
		return a.writeJSONL, nil
	case "trec":
		return func(queries []string, results []search.Result) error {
			return a.writeTREC(tag, queries, results)
		}, nil
	}
	t := hitTable{app: a}
	return t.write, nil
}

type hitJSON struct {
	ID      string  `json:"id"`
	Score   float32 `json:"score"`
	Payload any     `json:"payload,omitempty"`
}

func (a *app) writeJSONL(queries []string, results []search.Result) error {
	var b bytes.Buffer
	for i, r := range results {
		hits := make([]hitJSON, len(r.Hits))
		for j, h := range r.Hits {
			hits[j] = hitJSON{h.ID, h.Score, payloadJSON(h.Payload)}
		}
		line, err := encodeJSON(struct {
			Query string    `json:"query"`
			Hits  []hitJSON `json:"hits"`
		}{queries[i], hits})
		if err != nil {
			return fmt.Errorf("query %q: %w", queries[i], err)
		}
		b.Write(line)
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

func (a *app) writeTREC(tag string, queries []string, results []search.Result) error {
	run := &eval.Run{Tag: tag}
	for i, r := range results {
		hits := make([]eval.Hit, len(r.Hits))
		for j, h := range r.Hits {
			hits[j] = eval.Hit{Doc: h.ID, Score: float64(h.Score), Rank: j + 1}
		}
		if err := run.Add(queries[i], hits...); err != nil {
			return err
		}
	}
	return eval.WriteRun(a.out, run)
}

// hitTable prints results for reading: query, rank, score, id, and what the
// payload says.
type hitTable struct {
	*app
	begun bool
}

const (
	idColumn      = 40 // characters at most
	snippetColumn = 60
)

func (t *hitTable) write(queries []string, results []search.Result) error {
	wide := struct{ query, id int }{len("QUERY"), len("ID")}
	for i, r := range results {
		queries[i] = printable(queries[i], idColumn)
		wide.query = max(wide.query, utf8.RuneCountInString(queries[i]))
		for _, h := range r.Hits {
			wide.id = max(wide.id, utf8.RuneCountInString(printable(h.ID, idColumn)))
		}
	}
	rest := snippetColumn
	if t.outWidth > 0 {
		rest = max(t.outWidth-wide.query-wide.id-len("  RANK       SCORE    "), 10)
	}
	var b bytes.Buffer
	line := func(query, rank, score, id, text string) {
		s := fmt.Sprintf("%-*s  %4s  %10s  %-*s  %s", wide.query, query, rank, score, wide.id, id, text)
		b.WriteString(strings.TrimRight(s, " ") + "\n")
	}
	if !t.begun {
		t.begun = true
		line("QUERY", "RANK", "SCORE", "ID", "")
	}
	for i, r := range results {
		if len(r.Hits) == 0 {
			line(queries[i], "-", "-", "no document matches", "")
		}
		for j, h := range r.Hits {
			line(queries[i], fmt.Sprint(j+1), fmt.Sprintf("%.4f", h.Score), printable(h.ID, idColumn), printable(snippet(h.Payload), rest))
		}
	}
	_, err := t.out.Write(b.Bytes())
	return err
}

// printStats writes the sum over all searches to stderr.
func (a *app) printStats(format string, s search.Stats) error {
	var b bytes.Buffer
	switch format {
	case "":
		return nil
	case "json":
		line, err := encodeJSON(s)
		if err != nil {
			return err
		}
		b.Write(line)
	default:
		statsTable(&b, s)
	}
	_, err := a.console.Write(b.Bytes())
	return err
}

func statsTable(b *bytes.Buffer, s search.Stats) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	n := max(s.Queries, 1)
	fmt.Fprintf(w, "\ttotal\ta query\t\n")
	count := func(name string, v int64) {
		fmt.Fprintf(w, "%s\t%s\t%.1f\t\n", name, formatCount(v), float64(v)/float64(n))
	}
	fmt.Fprintf(w, "queries\t%s\t\t\n", formatCount(s.Queries))
	for _, plan := range []search.Plan{search.PlanProbe, search.PlanScan, search.PlanExact} {
		fmt.Fprintf(w, "… by plan %v\t%s\t\t\n", plan, formatCount(s.Plans[plan.String()]))
	}
	count("query tokens", int64(s.QueryTokens))
	count("allowed documents", s.Allowed)
	count("ids not there", s.FilterMissing)
	count("centroids probed", s.Probed)
	count("postings read", s.Postings)
	count("candidates", s.Candidates)
	count("queries widened", s.Widened)
	count("approximate scores", s.ApproxDocs)
	count("… tokens", s.ApproxTokens)
	count("exact scores", s.ExactDocs)
	count("… tokens", s.ExactTokens)
	count("refined scores", s.RefinedDocs)
	t := s.Times
	for _, x := range []struct {
		name string
		ns   int64
	}{
		{"centroid scores", int64(t.Centroids)}, {"probe", int64(t.Probe)}, {"approximate", int64(t.Approx)},
		{"exact", int64(t.Exact)}, {"refine", int64(t.Refine)}, {"all stages", int64(t.Total)},
	} {
		fmt.Fprintf(w, "time: %s\t%.2f ms\t%.3f ms\t\n", x.name, float64(x.ns)/1e6, float64(x.ns)/1e6/float64(n))
	}
	_ = w.Flush() // to memory
}
