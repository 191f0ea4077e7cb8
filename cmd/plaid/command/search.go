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
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/vectors"
)

// batchQueries is how many queries are searched, and their results printed, at
// once.
const batchQueries = 32

func (a *app) searchCommand() *cobra.Command {
	var s flags.Search
	var words flags.Words
	var names indexes
	var printed resultFlags
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
and tag, and questions by their numbers from 0; the scores of these two give back
the exact float32. grep has path:line: text, for an index that plaid watch keeps.`,
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
	printed.register(cmd)
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		write, err := a.newHitWriter(&printed)
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
		o.Payload, o.Matches = printed.payloads() || printed.highlight, printed.highlight
		if o.Group != "" && (!given || words.Fuses()) || printed.highlight && !texts {
			return flags.Usagef("--group and --highlight are for searches by vectors alone, and --highlight for questions as texts")
		}
		if paths, err := names.paths(args[0]); err != nil {
			return err
		} else if len(paths) > 1 && (!given || words.Fuses()) {
			return flags.Usagef("searches by words are of one index; %s stands for %d", args[0], len(paths))
		}
		if !given {
			if printed.stats != "" {
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
		return a.search(ctx, &names, args, &words, &answering{flags: &s, write: write, highlight: printed.highlight}, o, printed.stats)
	})
	return cmd
}

func (a *app) search(ctx context.Context, names *indexes, args []string, words *flags.Words, answers *answering, o search.Options, stats string) error {
	s := answers.flags
	return a.openSearched(ctx, names, args[0], func(x *searched) (err error) {
		if answers.queries, err = a.openQueries(ctx, &s.Queries, args[1:], x.snap, s.Threads, &s.Device); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, answers.queries.Close()) }()
		a.warnWithoutCandidates(s, answers.queries)
		if answers.highlight {
			if answers.queries.high, err = a.newHighlighter(answers.queries, x); err != nil {
				return err
			}
		}
		err = a.withSearcher(ctx, x, search.EngineOptions{Threads: s.Threads, Bound: s.Bound}, &s.Device, func(engine searcher) error {
			if !words.Fuses() {
				return answers.answerRemaining(ctx, engine, o, nil)
			}
			return a.fused(ctx, words, answers.queries, x.snap, o, func(o search.Options, fuse func(*querySet, []search.Result) error) error {
				return answers.answerRemaining(ctx, engine, o, fuse)
			})
		})
		if err != nil {
			return err
		}
		total := &answers.total
		a.logger().Info("searched", "queries", total.Queries, "took", round(total.Times.Total), "candidates", total.Candidates, "exact", total.ExactDocs)
		return a.printStats(stats, *total)
	})
}

// answering prints what is found for queries, for each once, however often it is begun
// anew.
type answering struct {
	flags   *flags.Search
	queries *queries
	write   hitWriter
	// highlight says that words of hits are wanted.
	highlight bool

	next    int // the first query without an answer
	total   search.Stats
	partial *search.Coverage // of an answer from fewer documents than there are
}

// answerRemaining answers the queries that have no answer yet. Where refine is not nil, it
// changes results before they are printed.
func (w *answering) answerRemaining(ctx context.Context, engine search.Searcher, o search.Options, refine func(*querySet, []search.Result) error) error {
	for w.next < w.queries.Len() {
		batch, err := w.queries.read(ctx, w.next, min(w.next+batchQueries, w.queries.Len()))
		if err != nil {
			return err
		}
		results, err := answerBatch(ctx, engine, w.flags, batch, o)
		if err == nil && refine != nil {
			err = refine(batch, results)
		}
		if err != nil {
			return err
		}
		for _, r := range results {
			w.total.Add(r.Stats)
			if !r.Coverage.Complete() {
				w.partial = &r.Coverage
			}
		}
		if err := w.write(batch, results); err != nil {
			return fmt.Errorf("writing results: %w", err)
		}
		w.next += len(batch.ids)
	}
	return nil
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
func (t *stdio) warnWithoutCandidates(s *flags.Search, queries vectors.Source) {
	n, first := s.WithoutCandidates(queries)
	t.warnOfQueries(n, first, s.Candidates)
}

func (t *stdio) warnOfQueries(n int, first, run string) {
	switch {
	case n == 1:
		t.warn("query %q is not in %s: it has no candidates", first, run)
	case n > 1:
		t.warn("%d queries (%q is the first) are not in %s: they have no candidates", n, first, run)
	}
}

// hitWriter prints the results of a batch of queries to stdout.
type hitWriter func(queries *querySet, results []search.Result) error

// resultFlags say how results are printed.
type resultFlags struct {
	format     flags.Format
	stats, tag string
	payload    bool
	highlight  bool
}

// registerFormat registers those that do not ask for an index.
func (r *resultFlags) registerFormat(cmd *cobra.Command) {
	r.format.Register(cmd, "results", "table", "jsonl", "trec", "grep")
	cmd.Flags().StringVar(&r.tag, "tag", "plaid", "`WORD` in the last column of format trec")
}

func (r *resultFlags) register(cmd *cobra.Command) {
	r.registerFormat(cmd)
	f := cmd.Flags()
	f.BoolVar(&r.payload, "payload", false, "print payloads (format jsonl)")
	f.BoolVar(&r.highlight, "highlight", false, "show the words of documents that words of the question have found (table: in brackets; jsonl: spans)")
	f.Var(flags.Choice(&r.stats, "", "table", "json"), "stats", "print to stderr what the searches did")
	f.Lookup("stats").NoOptDefVal = "table"
}

// payloads says whether results show something of payloads.
func (r *resultFlags) payloads() bool {
	return r.payload || r.format.Word() == "table" || r.format.Word() == "grep"
}

func (t *stdio) newHitWriter(r *resultFlags) (hitWriter, error) {
	switch {
	case r.payload && r.format.Word() != "jsonl":
		return nil, flags.Usagef("--payload goes with --format jsonl")
	case r.highlight && r.format.Word() == "trec":
		return nil, flags.Usagef("--highlight goes with --format table and jsonl")
	case r.tag == "" || strings.ContainsAny(r.tag, " \t\r\n\v\f"):
		return nil, flags.Usagef("--tag %q: a tag is one word", r.tag)
	}
	switch r.format.Word() {
	case "jsonl":
		return func(queries *querySet, results []search.Result) error {
			return t.writeJSONL(r.payload, queries, results)
		}, nil
	case "grep":
		return t.writeGrep, nil
	case "trec":
		return func(queries *querySet, results []search.Result) error {
			return t.writeTREC(r.tag, queries, results)
		}, nil
	}
	table := hitTable{stdio: t}
	return table.write, nil
}

// hitJSON is a [search.Hit] without what means something inside the index only.
type hitJSON struct {
	Rank    int            `json:"rank"` // from 1
	ID      string         `json:"id"`
	Score   float32        `json:"score"`
	Payload search.Payload `json:"payload,omitzero"`
	// Passages are those of a document, where hits are grouped.
	Passages []hitJSON        `json:"passages,omitempty"`
	Number   *int             `json:"n,omitempty"`     // of a passage
	Start    *int             `json:"start,omitempty"` // its bytes in the text of the document
	End      *int             `json:"end,omitempty"`
	Spans    []highlight.Span `json:"spans,omitempty"`
}

// hitsJSON are the hits of query i.
func hitsJSON(payload bool, queries *querySet, i int, all []search.Hit) ([]hitJSON, error) {
	hits := make([]hitJSON, len(all))
	for j := range all {
		from, h := &all[j], &hits[j]
		*h = hitJSON{Rank: j + 1, ID: from.ID, Score: from.Score}
		if payload {
			h.Payload = from.Payload
		}
		if p := from.Passage; p != nil {
			h.Number, h.Start, h.End = &p.Number, &p.Start, &p.End
		}
		var err error
		if h.Spans, err = queries.spans(i, from); err != nil {
			return nil, err
		}
		if from.Passages == nil {
			continue
		}
		if h.Passages, err = hitsJSON(payload, queries, i, from.Passages); err != nil {
			return nil, err
		}
	}
	return hits, nil
}

func (t *stdio) writeJSONL(payload bool, queries *querySet, results []search.Result) error {
	var b bytes.Buffer
	for i, r := range results {
		hits, err := hitsJSON(payload, queries, i, r.Hits)
		if err != nil {
			return fmt.Errorf("query %q: %w", queries.label(i), err)
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
	_, err := t.out.Write(b.Bytes())
	return err
}

func (t *stdio) writeTREC(tag string, queries *querySet, results []search.Result) error {
	run := &eval.Run{Tag: tag}
	for i, r := range results {
		if err := beir.AddHits(run, queries.ids[i], r.Hits); err != nil {
			return err
		}
	}
	return eval.WriteRun(t.out, run)
}

// hitTable prints results for reading: query, rank, score, id, and what the
// payload says.
type hitTable struct {
	*stdio
	begun bool
}

const snippetColumn = 60 // characters at most, where there is no terminal

func (t *hitTable) write(queries *querySet, results []search.Result) error {
	var b bytes.Buffer
	var err error
	if queries.texts != nil {
		err = t.answers(&b, queries, results)
	} else {
		err = t.rows(&b, queries, results)
	}
	if err != nil {
		return err
	}
	_, err = t.out.Write(b.Bytes())
	return err
}

// answers has the hits of each question below it.
func (t *hitTable) answers(b *bytes.Buffer, queries *querySet, results []search.Result) error {
	for i, r := range results {
		if t.begun {
			b.WriteByte('\n')
		}
		t.begun = true
		fmt.Fprintln(b, out.Printable(queries.texts[i], 200))
		wide := 0
		for _, h := range r.Hits {
			wide = max(wide, utf8.RuneCountInString(out.ID(h.ID)))
		}
		if len(r.Hits) == 0 {
			fmt.Fprintln(b, "     no document matches")
		}
		for j := range r.Hits {
			h := &r.Hits[j]
			text, err := t.says(queries, i, h, t.rest(wide+20))
			if err != nil {
				return err
			}
			line := fmt.Sprintf("%4d  %10.4f  %-*s  %s", j+1, h.Score, wide, out.ID(h.ID), text)
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			if err := t.passageLines(b, queries, i, h, 6); err != nil {
				return err
			}
		}
	}
	return nil
}

// says is what the payload of a hit says, in so many characters.
func (t *hitTable) says(queries *querySet, i int, h *search.Hit, limit int) (string, error) {
	from := h
	if len(h.Passages) == 1 && h.Passages[0].Passage == nil {
		from = &h.Passages[0]
	}
	spans, err := queries.spans(i, from)
	return snippet(from.Payload, spans, limit), err
}

// rest is the room for what a payload says, beside so many characters.
func (t *hitTable) rest(taken int) int {
	if t.outWidth > 0 {
		return max(t.outWidth-taken, 10)
	}
	return snippetColumn
}

func (t *hitTable) rows(b *bytes.Buffer, set *querySet, results []search.Result) error {
	queries := set.ids
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
		for j := range r.Hits {
			h := &r.Hits[j]
			text, err := t.says(set, i, h, rest)
			if err != nil {
				return err
			}
			line(query, fmt.Sprint(j+1), fmt.Sprintf("%.4f", h.Score), out.ID(h.ID), text)
			if err := t.passageLines(b, set, i, h, wide.query+8); err != nil {
				return err
			}
		}
	}
	return nil
}

// printStats writes the sum over all searches to stderr.
func (t *stdio) printStats(format string, s search.Stats) error {
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
	_, err := t.console.Write(b.Bytes())
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
