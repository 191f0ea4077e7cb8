package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// losses are the parts of the exact result that pruning and compression lose, each measured by
// itself.
type losses struct {
	Pruning     pruningLoss      `json:"pruning"`
	Compression *compressionLoss `json:"compression,omitempty"`
	PerQuery    []queryLoss      `json:"per_query,omitempty"`
	ids         []string
	perQuery    bool
}

// pruningLoss compares a setting with exhaustive search over the stored vectors.
type pruningLoss struct {
	Setting quality.Setting `json:"setting"`
	Recall  float64         `json:"recall"`
	// Worst is the recall of the worst query.
	Worst   float64 `json:"worst"`
	Wanted  int     `json:"wanted"`
	Missing int     `json:"missing"`
	// Lost counts the missing documents by the stage that lost them.
	Lost map[search.Stage]int `json:"lost"`
}

// compressionLoss compares exhaustive search over the stored vectors with exact MaxSim over the
// original vectors.
type compressionLoss struct {
	Docs       int     `json:"docs"`
	PassedOver int     `json:"passed_over"`
	Reshaped   int     `json:"reshaped"`
	Overlap    float64 `json:"overlap"`
	// Worst is the overlap of the worst query.
	Worst  float64 `json:"worst"`
	Scores int     `json:"scores"`
	RMSE   float64 `json:"score_rmse"`
	Bias   float64 `json:"score_bias"`
}

// queryLoss is the loss of one query.
type queryLoss struct {
	Query  string  `json:"query"`
	Recall float64 `json:"recall"`
	// Overlap is that of compression.
	Overlap *float64 `json:"overlap,omitempty"`
	// Missing are the documents that pruning lost.
	Missing []quality.Missing `json:"missing"`
}

// measure measures what searches with a setting lose, and, if the original vectors are given, what
// compression loses.
func (r *losses) measure(ctx context.Context, a *app, e searcher, engine *search.Engine, snap *index.Snapshot,
	set *querySet, b *benchFlags,
	setting quality.Setting, reference [][]search.Hit) (err error) {
	pruned, err := quality.MeasureRecall(ctx, e, set.queries, setting.Options(b.k), reference, a.progress())
	if err != nil {
		return err
	}
	r.addPruning(setting, pruned)
	if len(b.originals.Vectors) == 0 {
		return nil
	}
	src, err := b.originals.Open(ctx, a.in, a.printWarning)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	c, err := quality.MeasureCompression(ctx, engine, snap, set.queries, src, b.k, reference, a.progress())
	if err != nil {
		return err
	}
	if c.Reshaped > 0 {
		a.printWarning("%s of --vectors have another number of tokens in the index: was it made from these files?",
			out.Plural(c.Reshaped, "document"))
	}
	r.addCompression(c, b.k)
	return nil
}

// addPruning adds the measured recall of searches.
func (r *losses) addPruning(s quality.Setting, x *quality.Recall) {
	r.Pruning = pruningLoss{
		Setting: s,
		Recall:  x.Mean(),
		Worst:   1,
		Wanted:  x.ExhaustiveHits(),
		Lost:    x.Lost(),
	}
	for i := range x.Queries {
		q := &x.Queries[i]
		r.Pruning.Worst = min(r.Pruning.Worst, q.Recall())
		r.Pruning.Missing += len(q.Missing)
		if r.perQuery {
			r.PerQuery = append(r.PerQuery, queryLoss{Query: r.ids[i], Recall: q.Recall(), Missing: q.Missing})
		}
	}
}

// addCompression adds the measured loss by compression.
func (r *losses) addCompression(c *quality.Compression, k int) {
	r.Compression = &compressionLoss{
		Docs:       c.Docs,
		PassedOver: c.Skipped,
		Reshaped:   c.Reshaped,
		Overlap:    c.Overlap(k),
		Worst:      1,
		Scores:     c.Scores,
		RMSE:       c.RMSE,
		Bias:       c.Bias,
	}
	for i := range c.Queries {
		v := c.Queries[i].Overlap(k)
		r.Compression.Worst = min(r.Compression.Worst, v)
		if r.perQuery {
			r.PerQuery[i].Overlap = &v
		}
	}
}

// lossStages are the stages that can lose a document without a filter.
var lossStages = quality.LossStages[1:]

// shownMissing is the number of missing documents of a query that a table lists.
const shownMissing = 5

// writeTable writes the losses as tables.
func (r *losses) writeTable(b *bytes.Buffer) {
	p := &r.Pruning
	fmt.Fprintf(b, "pruning: %v, against exhaustive search over the stored vectors\n", p.Setting)
	t := out.Table{Indent: 2}
	head := []string{"recall", "worst query", "missing"}
	line := []string{out.FourDecimals(p.Recall), out.FourDecimals(p.Worst),
		out.Count(p.Missing) + " of " + out.Count(p.Wanted)}
	for _, s := range lossStages {
		head, line = append(head, string(s)), append(line, out.Count(p.Lost[s]))
	}
	t.Line(head...)
	t.Line(line...)
	t.Print(b)
	if c := r.Compression; c != nil {
		fmt.Fprintf(b, "\ncompression: exhaustive search over the stored vectors against exact MaxSim over the "+
			"originals, %s\n", out.Plural(c.Docs, "document"))
		t := out.Table{Indent: 2}
		t.Line("overlap", "worst query", "error of scores", "bias")
		t.Line(out.FourDecimals(c.Overlap), out.FourDecimals(c.Worst), out.FourDecimals(c.RMSE),
			fmt.Sprintf("%+.4f", c.Bias))
		t.Print(b)
	}
	if r.perQuery {
		r.queryTable(b)
	}
}

// queryTable lists the queries for which pruning loses documents.
func (r *losses) queryTable(b *bytes.Buffer) {
	b.WriteString("\nqueries with missing documents (rank in the exhaustive result, stage)\n")
	t := out.Table{LeftColumns: 2}
	t.Line("query", "recall")
	t.Remark("missing")
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
			list = append(list, fmt.Sprintf("%s (%d, %s)", out.TableID(m.ID), m.Rank, m.Stage))
		}
		t.Line(out.TableID(q.Query), out.FourDecimals(q.Recall))
		t.Remark(strings.Join(list, ", "))
	}
	t.Print(b)
}
