package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// batchQueries is how many queries are searched, and their results printed, at
// once.
const batchQueries = 32

func (a *app) searchCommand() *cobra.Command {
	var s flags.Search
	var words flags.Words
	var names indexes
	var format flags.Format
	var stats, tag string
	var payload bool
	cmd := &cobra.Command{
		Use:   "search INDEX {QUESTION… | --queries-text FILE | --queries FILE}",
		Short: "Find the best documents for queries",
		Long: `
Find the documents of highest MaxSim score for each query. Results come in the
order of the queries, best document first; documents of the same score in the
order in which they were added. Fewer than k documents are returned only where
fewer match.

Questions are texts. The model that the index names encodes them; --model says
where its folder is if it was moved, or names the model of an index that was built
from vectors. A query by another model than that of the index is refused, and so
are vectors that --vectors-model says to be another model's.

` + severalHelp + `
--device may then name several devices, as cuda:0,cuda:1, which share the files.

Mode pruned, the default, scores only documents that share a probed centroid
with the query, and of these exactly only the most promising; its budgets follow
from k. Mode exhaustive scores every document, mode candidates those that a TREC
run lists for the query.

Formats: table is for reading; jsonl is one object a query, {"type": "result",
"query": …, "hits": [{"rank": 1, "id": …, "score": …}, …]}, the query being a
question's text or else an id; trec has the columns query, Q0, document, rank, score
and tag, and questions by their numbers from 0. The scores of the last two give back
the exact float32.`,
		Example: `  plaid search docs.plaid 'what makes cells divide?'
  plaid search docs.plaid --queries-text queries.jsonl -k 100 --format trec > run.trec
  plaid search docs.plaid --queries queries.npy
  plaid search shards/ 'what makes cells divide?'
  plaid search a.plaid --index b.plaid --index c.plaid --queries queries.npy
  plaid search docs.plaid --queries queries.npy --query-ids qids.txt -k 100 --format trec > run.trec
  plaid search docs.plaid --queries queries.jsonl --candidates bm25.trec --allow-missing --format jsonl`,
		Args: takes("INDEX", "…"),
	}
	f := cmd.Flags()
	s.Register(f)
	words.Register(cmd)
	names.register(f)
	format.Register(cmd, "results", "table", "jsonl", "trec")
	f.BoolVar(&payload, "payload", false, "print payloads (format jsonl)")
	f.StringVar(&tag, "tag", "plaid", "`WORD` in the last column of format trec")
	f.Var(flags.Choice(&stats, "", "table", "json"), "stats", "print to stderr what the searches did")
	f.Lookup("stats").NoOptDefVal = "table"
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		write, err := a.newHitWriter(format.Word(), tag, payload)
		if err != nil {
			return err
		}
		given, texts := len(args) > 1 || s.Queries.Given() || !words.ByWords(), false
		if given {
			if texts, err = s.Queries.AreTexts(args[1:]); err != nil {
				return err
			}
		}
		if err := words.Check(given, texts, &s); err != nil {
			return err
		}
		o, err := s.Options(ctx)
		if err != nil {
			return err
		}
		o.Payload = payload || format.Word() == "table"
		if paths, err := names.paths(args[0]); err != nil {
			return err
		} else if len(paths) > 1 && (!given || words.Fuses()) {
			return flags.Usagef("searches by words are of one index; %s stands for %d", args[0], len(paths))
		}
		if !given {
			if stats != "" {
				return flags.Usagef("--stats counts what searches by vectors did, and there are none")
			}
			return a.openSearched(ctx, &names, args[0], func(x *searched) error {
				snap := x.snap
				m, err := a.mixer(ctx, &words, snap, o)
				if err != nil {
					return err
				}
				return m.onlyWords(ctx, write)
			})
		}
		return a.search(ctx, &names, args, &s, &words, o, write, stats)
	})
	return cmd
}

func (a *app) search(ctx context.Context, names *indexes, args []string, s *flags.Search, words *flags.Words, o search.Options, write hitWriter, stats string) error {
	return a.openSearched(ctx, names, args[0], func(x *searched) (err error) {
		queries, err := a.openQueries(ctx, &s.Queries, args[1:], x.snap, s.Threads)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, queries.Close()) }()
		a.warnWithoutCandidates(s, queries)
		var total search.Stats
		next := 0
		answer := func(engine search.Searcher, o search.Options, more func(*querySet, []search.Result) error) error {
			for lo := next; lo < queries.Len(); lo += batchQueries {
				batch, err := queries.read(ctx, lo, min(lo+batchQueries, queries.Len()))
				if err != nil {
					return err
				}
				results, err := answerBatch(ctx, engine, s, batch, o)
				if err != nil {
					return err
				}
				if err := more(batch, results); err != nil {
					return err
				}
				for _, r := range results {
					total.Add(r.Stats)
				}
				if err := write(batch, results); err != nil {
					return fmt.Errorf("writing results: %w", err)
				}
				next = lo + batchQueries
			}
			return nil
		}
		err = a.withSearcher(ctx, x, search.EngineOptions{Threads: s.Threads, Bound: s.Bound}, &s.Device, func(engine searcher) error {
			if !words.Fuses() {
				return answer(engine, o, func(*querySet, []search.Result) error { return nil })
			}
			return a.fused(ctx, words, queries, x.snap, o, func(o search.Options, more func(*querySet, []search.Result) error) error {
				return answer(engine, o, more)
			})
		})
		if err != nil {
			return err
		}
		a.logger().Info("searched", "queries", total.Queries, "took", round(total.Times.Total), "candidates", total.Candidates, "exact", total.ExactDocs)
		return a.printStats(stats, total)
	})
}

// answerBatch searches a batch. Candidates differ from query to query, so that these
// are searched one by one.
func answerBatch(ctx context.Context, e search.Searcher, s *flags.Search, batch *querySet, o search.Options) ([]search.Result, error) {
	if !s.PerQuery() {
		results, err := e.SearchBatch(ctx, batch.qs, o)
		return results, batch.named(err)
	}
	results := make([]search.Result, len(batch.qs))
	for i, q := range batch.qs {
		r, err := e.Search(ctx, q, s.ForQuery(o, batch.ids[i]))
		if err != nil {
			return nil, fmt.Errorf("query %q: %w", batch.ids[i], err)
		}
		results[i] = *r
	}
	return results, nil
}

// warnWithoutCandidates says which queries have no candidates.
func (a *app) warnWithoutCandidates(s *flags.Search, queries vectors.Source) {
	n, first := s.WithoutCandidates(queries)
	a.warnOfQueries(n, first, s.Candidates)
}

func (a *app) warnOfQueries(n int, first, run string) {
	switch {
	case n == 1:
		a.warn("query %q is not in %s: it has no candidates", first, run)
	case n > 1:
		a.warn("%d queries (%q is the first) are not in %s: they have no candidates", n, first, run)
	}
}

// hitWriter prints the results of a batch of queries to stdout.
type hitWriter func(queries *querySet, results []search.Result) error

func (a *app) newHitWriter(format, tag string, payload bool) (hitWriter, error) {
	switch {
	case payload && format != "jsonl":
		return nil, flags.Usagef("--payload goes with --format jsonl")
	case tag == "" || strings.ContainsAny(tag, " \t\r\n\v\f"):
		return nil, flags.Usagef("--tag %q: a tag is one word", tag)
	}
	switch format {
	case "jsonl":
		return a.writeJSONL, nil
	case "trec":
		return func(queries *querySet, results []search.Result) error {
			return a.writeTREC(tag, queries, results)
		}, nil
	}
	t := hitTable{app: a}
	return t.write, nil
}

// hitJSON is a [search.Hit] without what means something inside the index only.
type hitJSON struct {
	Rank    int            `json:"rank"` // from 1
	ID      string         `json:"id"`
	Score   float32        `json:"score"`
	Payload search.Payload `json:"payload,omitzero"`
}

func (a *app) writeJSONL(queries *querySet, results []search.Result) error {
	var b bytes.Buffer
	for i, r := range results {
		hits := make([]hitJSON, len(r.Hits))
		for j, h := range r.Hits {
			hits[j] = hitJSON{j + 1, h.ID, h.Score, h.Payload}
		}
		line, err := out.Typed("result", struct {
			Query string    `json:"query"`
			Hits  []hitJSON `json:"hits"`
		}{queries.label(i), hits})
		if err != nil {
			return fmt.Errorf("query %q: %w", queries.label(i), err)
		}
		b.Write(line)
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

func (a *app) writeTREC(tag string, queries *querySet, results []search.Result) error {
	run := &eval.Run{Tag: tag}
	for i, r := range results {
		if err := beir.AddHits(run, queries.ids[i], r.Hits); err != nil {
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

const snippetColumn = 60 // characters at most, where there is no terminal

func (t *hitTable) write(queries *querySet, results []search.Result) error {
	var b bytes.Buffer
	if queries.texts != nil {
		t.answers(&b, queries.texts, results)
	} else {
		t.rows(&b, queries.ids, results)
	}
	_, err := t.out.Write(b.Bytes())
	return err
}

// answers has the hits of each question below it.
func (t *hitTable) answers(b *bytes.Buffer, questions []string, results []search.Result) {
	for i, r := range results {
		if t.begun {
			b.WriteByte('\n')
		}
		t.begun = true
		fmt.Fprintln(b, out.Printable(questions[i], 200))
		wide := 0
		for _, h := range r.Hits {
			wide = max(wide, utf8.RuneCountInString(out.ID(h.ID)))
		}
		if len(r.Hits) == 0 {
			fmt.Fprintln(b, "     no document matches")
		}
		for j, h := range r.Hits {
			line := fmt.Sprintf("%4d  %10.4f  %-*s  %s", j+1, h.Score, wide, out.ID(h.ID), out.Printable(out.Snippet(h.Payload), t.rest(wide+20)))
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
}

// rest is the room for what a payload says, beside so many characters.
func (t *hitTable) rest(taken int) int {
	if t.outWidth > 0 {
		return max(t.outWidth-taken, 10)
	}
	return snippetColumn
}

func (t *hitTable) rows(b *bytes.Buffer, queries []string, results []search.Result) {
	wide := struct{ query, id int }{len("QUERY"), len("ID")}
	for i, r := range results {
		wide.query = max(wide.query, utf8.RuneCountInString(out.ID(queries[i])))
		for _, h := range r.Hits {
			wide.id = max(wide.id, utf8.RuneCountInString(out.ID(h.ID)))
		}
	}
	rest := t.rest(wide.query + wide.id + len("  RANK       SCORE    "))
	line := func(query, rank, score, id, text string) {
		s := fmt.Sprintf("%-*s  %4s  %10s  %-*s  %s", wide.query, query, rank, score, wide.id, id, text)
		b.WriteString(strings.TrimRight(s, " ") + "\n")
	}
	if !t.begun {
		t.begun = true
		line("QUERY", "RANK", "SCORE", "ID", "")
	}
	for i, r := range results {
		query := out.ID(queries[i])
		if len(r.Hits) == 0 {
			line(query, "-", "-", "no document matches", "")
		}
		for j, h := range r.Hits {
			line(query, fmt.Sprint(j+1), fmt.Sprintf("%.4f", h.Score), out.ID(h.ID), out.Printable(out.Snippet(h.Payload), rest))
		}
	}
}

// printStats writes the sum over all searches to stderr.
func (a *app) printStats(format string, s search.Stats) error {
	var b bytes.Buffer
	switch format {
	case "":
		return nil
	case "json":
		line, err := out.Typed("stats", s)
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
	table := out.Table{Indent: 2}
	n := max(s.Queries, 1)
	table.Line("", "total", "a query")
	count := func(name string, v int64) {
		table.Line(name, out.Count(v), fmt.Sprintf("%.1f", float64(v)/float64(n)))
	}
	table.Line("queries", out.Count(s.Queries), "")
	plans := []search.Plan{search.PlanProbe, search.PlanScan, search.PlanExact}
	if s.Device != nil {
		plans = []search.Plan{search.PlanDevice, search.PlanDeviceProbe}
	}
	for _, plan := range plans {
		table.Line("… by plan "+plan.String(), out.Count(s.Plans[plan.String()]), "")
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
	table.Line("… largest share of the error bound", fmt.Sprintf("%.3f", s.BoundShare), "")
	count("… queries that took the worst bound", s.Worst)
	for _, p := range s.Parts {
		count(fmt.Sprintf("hits of file %d", p.Part), p.Hits)
	}
	if d := s.Device; d != nil {
		table.Line("device", d.Device, "")
		count("… batches that a query was part of", d.Launches)
		count("… queries that shared one", d.Batched)
		count("… tokens scanned", d.ScanTokens)
		count("… queries repeated with a wider margin", d.Retried)
		count("… queries with last places in doubt", d.InDoubt)
		count("… bytes streamed", d.Streamed)
	}
	type timed struct {
		name string
		ns   int64
	}
	times := func(list []timed) {
		for _, x := range list {
			table.Line("time: "+x.name, fmt.Sprintf("%.2f ms", float64(x.ns)/1e6), fmt.Sprintf("%.3f ms", float64(x.ns)/1e6/float64(n)))
		}
	}
	if d := s.Device; d != nil {
		t := d.Times
		times([]timed{
			{"device, waiting", int64(t.Wait)}, {"device, copies and launches", int64(t.Transfer)}, {"device, centroid scores", int64(t.Centroids)},
			{"device, probe", int64(t.Probe)}, {"device, scan", int64(t.Scan)}, {"device, choice", int64(t.TopK)}, {"device, fine scores", int64(t.Fine)},
			{"device, all", int64(t.Total)},
		})
	}
	t := s.Times
	times([]timed{
		{"centroid scores", int64(t.Centroids)}, {"probe", int64(t.Probe)}, {"approximate", int64(t.Approx)},
		{"exact", int64(t.Exact)}, {"refine", int64(t.Refine)}, {"all stages", int64(t.Total)},
	})
	table.Print(b)
}
