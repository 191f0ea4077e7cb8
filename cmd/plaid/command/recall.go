package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// recallFlags say what plaid recall compares.
type recallFlags struct {
	queries   flags.Queries
	originals flags.Documents
	effort    flags.Effort
	k         []int
	threads   int
	format    flags.Format
	device    flags.Device
	perQuery  bool
}

func (r *recallFlags) register(f *pflag.FlagSet) {
	r.queries.Register(f)
	f.VarP(flags.Ints(&r.k, 1, 10, 100), "k", "k", "how many documents are searched for; each number is measured on its own")
	r.effort.Register(f)
	r.originals.RegisterOriginals(f, "measures compression too")
	flags.Threads(f, &r.threads, 0)
	r.device.RegisterEncoding(f)
	f.BoolVar(&r.perQuery, "per-query", false, "print what each query misses, and where it was lost")
}

func (a *app) recallCommand() *cobra.Command {
	var r recallFlags
	var names indexes
	cmd := &cobra.Command{
		Use:   "recall INDEX {--queries FILE | --queries-text FILE}",
		Short: "Measure what pruning and compression lose",
		Long: `
Measure two losses, which are never mixed.

Pruning: the share of the exhaustive result over the stored vectors that a
search finds. Each missing document is followed through the search, to the stage
that lost it: not probed (no probed centroid is among its own), cut (beyond the
approximate budget), pruned (beyond the exact budget, by approximate score), or
outranked (scored exactly; another has the same score but for rounding).

Compression, where --vectors are given: the share of the exact result, MaxSim
over the original vectors in float32, that exhaustive search over the stored
vectors returns; and by how much the scores of the exact result differ.

Format tsv has the columns query, measure and value, with all digits, and the
mean as query "all" at the end; json is one object.

` + severalHelp + ` Compression
is measured on one index.`,
		Example: `  plaid recall docs.plaid --queries queries.npy
  plaid recall docs.plaid --queries queries.npy -k 100 --probes 4 --per-query --format json
  plaid recall docs.plaid --queries queries.npy --vectors docs.npy --lengths doclens.npy --ids ids.txt`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	r.register(f)
	names.register(f)
	r.format.Register(cmd, "results", "table", "tsv", "json")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		return a.recall(ctx, &names, args[0], &r)
	})
	return cmd
}

func (a *app) recall(ctx context.Context, names *indexes, path string, r *recallFlags) error {
	ks := slices.Compact(slices.Sorted(slices.Values(r.k)))
	most := ks[len(ks)-1]
	return a.measure(ctx, names, path, &r.queries, r.threads, &r.device, nil, func(e searcher, x *searched, set *querySet) error {
		engine, one := e.(*search.Engine)
		if !one && len(r.originals.Vectors) > 0 {
			return flags.Usagef("--vectors: compression is measured on one index")
		}
		progress := a.progress()
		reference, err := quality.Reference(ctx, e, set.qs, most, progress)
		if err != nil {
			return err
		}
		rep := recallReport{Index: path, Queries: len(set.qs), ids: set.ids, perQuery: r.perQuery}
		for _, k := range ks {
			o := search.Options{K: k}
			r.effort.Apply(&o)
			losses, err := quality.MeasureRecallOf(ctx, e, set.qs, o, reference, progress)
			if err != nil {
				return err
			}
			rep.addPruning(losses)
		}
		if len(r.originals.Vectors) > 0 {
			c, err := a.compression(ctx, engine, x.snap, r, set, most, reference)
			if err != nil {
				return err
			}
			rep.addCompression(c, ks)
		}
		text, err := rep.render(r.format.Word())
		if err != nil {
			return err
		}
		return a.print(text)
	})
}

func (a *app) compression(ctx context.Context, engine *search.Engine, snap *index.Snapshot, r *recallFlags, set *querySet, k int, reference [][]search.Hit) (c *quality.Compression, err error) {
	src, err := r.originals.Open(ctx, a.in)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if c, err = quality.MeasureCompression(ctx, engine, snap, set.qs, src, k, reference, a.progress()); err != nil {
		return nil, err
	}
	if c.Reshaped > 0 {
		a.warn("%s of --vectors have another number of tokens in the index: are they those it was made from?", out.Plural(c.Reshaped, "document"))
	}
	return c, nil
}

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
	Query   string            `json:"query"`
	K       int               `json:"k"`
	Recall  float64           `json:"recall"`
	Overlap *float64          `json:"overlap,omitempty"` // of compression
	Missing []quality.Missing `json:"missing"`           // by pruning
}

func (r *recallReport) addPruning(x *quality.Recall) {
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

func (r *recallReport) addCompression(c *quality.Compression, ks []int) {
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
		return out.Typed("recall", r)
	case "tsv":
		return r.tsv(), nil
	}
	return r.table(), nil
}

// lossStages can lose a document here, where nothing is filtered.
var lossStages = quality.LossStages[1:]

// measureName makes a stage a word.
func measureName(s search.Stage) string { return strings.ReplaceAll(string(s), " ", "_") }

func (r *recallReport) tsv() []byte {
	var b bytes.Buffer
	row := func(query, measure string, k int, value float64) {
		fmt.Fprintf(&b, "%s\t%s@%d\t%s\n", out.Field(query), measure, k, out.Float(value))
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
	fmt.Fprintf(&b, "pruning: a search against exhaustive search over the stored vectors, %s\n", out.Queries(r.Queries))
	t := out.Table{Indent: 2}
	head := []string{"k", "recall", "worst query", "missing"}
	for _, s := range lossStages {
		head = append(head, string(s))
	}
	t.Line(head...)
	for _, p := range r.Pruning {
		line := []string{strconv.Itoa(p.K), out.Fixed(p.Recall), out.Fixed(p.Worst), out.Count(p.Missing) + " of " + out.Count(p.Wanted)}
		for _, s := range lossStages {
			line = append(line, out.Count(p.Lost[s]))
		}
		t.Line(line...)
	}
	t.Print(&b)
	if c := r.Compression; c != nil {
		fmt.Fprintf(&b, "\ncompression: exhaustive search over the stored vectors against exact MaxSim over the originals, %s\n", out.Plural(c.Docs, "document"))
		t := out.Table{Indent: 2}
		t.Line("k", "overlap", "worst query")
		for _, o := range c.Overlap {
			t.Line(strconv.Itoa(o.K), out.Fixed(o.Overlap), out.Fixed(o.Worst))
		}
		t.Print(&b)
		fmt.Fprintf(&b, "stored scores of the exact best %s: root mean square error %.4f, bias %+.4f\n", out.Count(c.Depth), c.RMSE, c.Bias)
	}
	if r.perQuery {
		r.lossTable(&b)
	}
	return b.Bytes()
}

// lossTable lists the queries that pruning takes something from.
func (r *recallReport) lossTable(b *bytes.Buffer) {
	b.WriteString("\nqueries with missing documents (rank in the exhaustive result, stage)\n")
	t := out.Table{Left: 3}
	t.Line("query", "k", "recall")
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
			list = append(list, fmt.Sprintf("%s (%d, %s)", out.ID(m.ID), m.Rank, m.Stage))
		}
		t.Line(out.ID(q.Query), strconv.Itoa(q.K), out.Fixed(q.Recall))
		t.Remark(strings.Join(list, ", "))
	}
	t.Print(b)
}
