package main

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/plaid-ir/plaid/search"
)

// recallReport is what plaid recall measured.
type recallReport struct {
	Index       string           `json:"index"`
	Queries     int              `json:"queries"`
	Pruning     []pruningLoss    `json:"pruning"`
	Compression *compressionLoss `json:"compression,omitempty"`
	PerQuery    []queryLoss      `json:"per_query,omitempty"`
	ids         []string
	perQuery    bool
}

// pruningLoss is of one k, against exhaustive search over the stored vectors.
type pruningLoss struct {
	K       int                  `json:"k"`
	Recall  float64              `json:"recall"`
	Worst   float64              `json:"worst"` // of a query
	Wanted  int                  `json:"wanted"`
	Missing int                  `json:"missing"`
	Lost    map[search.Stage]int `json:"lost"` // by the stage
}

// compressionLoss is of exhaustive search over the stored vectors, against exact
// MaxSim over the originals.
type compressionLoss struct {
	Docs       int           `json:"docs"`
	PassedOver int           `json:"passed_over"`
	Reshaped   int           `json:"reshaped"`
	Overlap    []overlapLoss `json:"overlap"`
	Scores     int           `json:"scores"`
	Depth      int           `json:"score_depth"`
	RMSE       float64       `json:"score_rmse"`
	Bias       float64       `json:"score_bias"`
}

type overlapLoss struct {
	K       int     `json:"k"`
	Overlap float64 `json:"overlap"`
	Worst   float64 `json:"worst"`
}

// queryLoss is one query at one k.
type queryLoss struct {
	Query   string           `json:"query"`
	K       int              `json:"k"`
	Recall  float64          `json:"recall"`
	Overlap *float64         `json:"overlap,omitempty"` // of compression
	Missing []search.Missing `json:"missing"`           // by pruning
}

func (r *recallReport) addPruning(x *search.Recall) {
	p := pruningLoss{K: x.K, Recall: x.Mean(), Worst: 1, Wanted: x.Wanted(), Lost: x.Lost()}
	for i := range x.Queries {
		q := &x.Queries[i]
		p.Worst = min(p.Worst, q.Recall())
		p.Missing += len(q.Missing)
		if r.perQuery {
			r.PerQuery = append(r.PerQuery, queryLoss{Query: r.ids[i], K: x.K, Recall: q.Recall(), Missing: q.Missing})
		}
	}
	r.Pruning = append(r.Pruning, p)
}

func (r *recallReport) addCompression(c *search.Compression, ks []int) {
	r.Compression = &compressionLoss{
		Docs: c.Docs, PassedOver: c.Passed, Reshaped: c.Reshaped, Scores: c.Scores, Depth: c.K, RMSE: c.RMSE, Bias: c.Bias,
	}
	for j, k := range ks {
		o := overlapLoss{K: k, Overlap: c.Overlap(k), Worst: 1}
		for i := range c.Queries {
			v := c.Queries[i].Overlap(k)
			o.Worst = min(o.Worst, v)
			if r.perQuery {
				r.PerQuery[j*len(c.Queries)+i].Overlap = &v
			}
		}
		r.Compression.Overlap = append(r.Compression.Overlap, o)
	}
}

func (r *recallReport) render(format string) ([]byte, error) {
	switch format {
	case "json":
		return encodeJSON(r)
	case "tsv":
		return r.tsv(), nil
	}
	return r.table(), nil
}

// lossStages can lose a document here, where nothing is filtered.
var lossStages = search.LossStages[1:]

// measureName makes a stage a word.
func measureName(s search.Stage) string { return strings.ReplaceAll(string(s), " ", "_") }

func (r *recallReport) tsv() []byte {
	var b bytes.Buffer
	row := func(query, measure string, k int, value float64) {
		fmt.Fprintf(&b, "%s\t%s@%d\t%s\n", cell(query), measure, k, formatFloat(value))
	}
	for _, q := range r.PerQuery {
		row(q.Query, "pruning.recall", q.K, q.Recall)
		lost := map[search.Stage]int{}
		for _, m := range q.Missing {
			lost[m.Stage]++
		}
		for _, s := range lossStages {
			if lost[s] > 0 {
				row(q.Query, "pruning."+measureName(s), q.K, float64(lost[s]))
			}
		}
		if q.Overlap != nil {
			row(q.Query, "compression.overlap", q.K, *q.Overlap)
		}
	}
	for _, p := range r.Pruning {
		row(allQueries, "pruning.recall", p.K, p.Recall)
		for _, s := range lossStages {
			row(allQueries, "pruning."+measureName(s), p.K, float64(p.Lost[s]))
		}
	}
	if c := r.Compression; c != nil {
		for _, o := range c.Overlap {
			row(allQueries, "compression.overlap", o.K, o.Overlap)
		}
		row(allQueries, "compression.score_rmse", c.Depth, c.RMSE)
		row(allQueries, "compression.score_bias", c.Depth, c.Bias)
	}
	return b.Bytes()
}

// shownMissing is how many documents of a query a table lists.
const shownMissing = 5

func (r *recallReport) table() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "pruning: a search against exhaustive search over the stored vectors, %s\n", countNoun(r.Queries, "query", "queries"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "k\trecall\tworst query\tmissing\t")
	for _, s := range lossStages {
		fmt.Fprintf(w, "%s\t", s)
	}
	fmt.Fprintln(w)
	for _, p := range r.Pruning {
		fmt.Fprintf(w, "%d\t%.4f\t%.4f\t%s of %s\t", p.K, p.Recall, p.Worst, formatCount(p.Missing), formatCount(p.Wanted))
		for _, s := range lossStages {
			fmt.Fprintf(w, "%s\t", formatCount(p.Lost[s]))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to memory
	if c := r.Compression; c != nil {
		fmt.Fprintf(&b, "\ncompression: exhaustive search over the stored vectors against exact MaxSim over the originals, %s\n", plural(c.Docs, "document"))
		fmt.Fprint(w, "k\toverlap\tworst query\t\n")
		for _, o := range c.Overlap {
			fmt.Fprintf(w, "%d\t%.4f\t%.4f\t\n", o.K, o.Overlap, o.Worst)
		}
		_ = w.Flush()
		fmt.Fprintf(&b, "stored scores of the exact best %s: root mean square error %.4f, bias %+.4f\n", formatCount(c.Depth), c.RMSE, c.Bias)
	}
	if r.perQuery {
		r.lossTable(&b)
	}
	return b.Bytes()
}

// lossTable lists the queries that pruning takes something from.
func (r *recallReport) lossTable(b *bytes.Buffer) {
	b.WriteString("\nqueries with missing documents (rank in the exhaustive result, stage)\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "query\tk\trecall\tmissing\n")
	for _, q := range r.PerQuery {
		if len(q.Missing) == 0 {
			continue
		}
		var list []string
		for i, m := range q.Missing {
			if i == shownMissing {
				list = append(list, fmt.Sprintf("and %d more", len(q.Missing)-i))
				break
			}
			list = append(list, fmt.Sprintf("%s (%d, %s)", printable(m.ID, idColumn), m.Rank, m.Stage))
		}
		fmt.Fprintf(w, "%s\t%d\t%.4f\t%s\n", printable(q.Query, idColumn), q.K, q.Recall, strings.Join(list, ", "))
	}
	_ = w.Flush() // to memory
}
