package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode/modelof"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// batchQueries is the number of queries that are searched, and whose results are printed, at once.
const batchQueries = 32

func (a *app) searchCommand() *cobra.Command {
	var s flags.Search
	var words flags.Words
	var names indexNames
	var printed resultFlags
	var store string
	cmd := &cobra.Command{
		Use:   "search INDEX {QUESTION… | --questions FILE | --queries FILE}",
		Short: "Find the best documents for queries",
		Long: `
Find the documents with the highest MaxSim scores for each query. Results are in the
order of the queries, best document first; documents with the same score are in the
order in which they were added. Fewer than k documents are returned only if fewer
match.

Questions are texts. The model that the index names encodes them; --model gives its
folder if it was moved, or names the model of an index that was built from vectors.
Another model than that of the index is refused. --keywords searches by the words of
questions, which needs no model, and --hybrid by words and vectors; the vectors may then
come from --queries.

` + severalHelp + `
--device may then name several devices, as cuda:0,cuda:1, which share the files.

A search scores the documents that share a probed centroid with the query, and computes
exact scores only for the most promising of these; the budgets follow from k.
--exhaustive scores every document, --candidates those that a TREC run lists for the
query.

Formats: table is for reading. jsonl has one object for each query, {"type": "result",
"query": …, "hits": [{"rank": 1, "id": …, "score": …}, …]}, where the query is the text
of a question, or else an id. trec has the columns query, Q0, document, rank, score and
tag; questions that are arguments are numbered from 0. The scores of these two give back
the exact float32. tsv has the columns query-id, doc-id, rank and score, and a line of
these names; its ids may have blanks, which are an error with trec. grep has path:line:
text, for an index that plaid watch maintains.

INDEX may be the address of an index of a running service, such as
http://localhost:8080/docs. The service encodes the questions; the token in
` + EnvToken + ` is sent to it.

With --store, INDEX is the name of an index in an object store. The services that share
the store are asked, without their tokens: access to the store is sufficient.`,
		Example: `  plaid search docs.plaid 'what makes cells divide?'
  plaid search docs.plaid --questions queries.jsonl -k 100 --format trec > run.trec
  plaid search docs.plaid --keywords 'cell division'
  plaid search docs.plaid --queries queries.npy
  plaid search http://localhost:8080/docs 'what makes cells divide?' --hybrid
  plaid search shards/ 'what makes cells divide?'
  plaid search docs --store s3://bucket/plaid 'what makes cells divide?'
  plaid search a.plaid --shard b.plaid --shard c.plaid --queries queries.npy
  plaid search docs.plaid --queries queries.npy --query-ids qids.txt -k 100 --format trec > run.trec
  plaid search docs.plaid --queries queries.jsonl --candidates bm25.trec --json`,
		Args: namedArgs("INDEX", "…"),
	}
	f := cmd.Flags()
	s.Register(f)
	words.Register(cmd)
	names.register(f)
	printed.register(cmd)
	registerStore(f, &store)
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		write, err := a.newHitWriter(&printed)
		if err != nil {
			return err
		}
		if modelof.IsServer(args[0]) && store == "" {
			return a.searchService(ctx, f, args, &s, &words, &printed, write)
		}
		if _, err := os.Stat(args[0]); store == "" && len(args) == 1 && s.Queries.Vectors == "" &&
			s.Queries.Questions == "" && errors.Is(err, fs.ErrNotExist) {
			return flags.Usagef("%s is taken for INDEX, but there is no such file", out.Quoted(args[0]))
		}
		s.Queries.AllowBoth = words.Hybrid
		texts, err := s.Queries.AreTexts(args[1:])
		if err != nil {
			return err
		}
		if err := words.Check(len(args) > 1 || s.Queries.Questions != "", &s); err != nil {
			return err
		}
		o, err := s.Options(ctx)
		if err != nil {
			return err
		}
		o.Payload, o.Matches = printed.showsPayloads() || printed.highlight, printed.highlight
		switch {
		case printed.highlight && !texts:
			return flags.Usagef("--highlight is for questions as texts")
		case printed.highlight && words.Expression():
			return flags.Usagef("--highlight does not go with --keywords=expression")
		case o.Group != "" && words.WordsOnly() && o.Group != search.GroupBest:
			return flags.Usagef("--group=%s is for vectors; searches by words rank documents by their best passages",
				o.Group)
		case words.WordsOnly() && printed.stats != "":
			return flags.Usagef("--stats is for searches by vectors, and --keywords searches by words")
		}
		if store != "" {
			switch {
			case names.shardPaths != nil:
				return flags.Usagef("--shard is for index files: an index of a store has its own shards")
			case f.Changed("device"):
				return flags.Usagef("--device does not go with --store: its services search")
			case printed.highlight && words.WordsOnly():
				return flags.Usagef("--highlight does not go with --keywords and --store")
			}
			answers := &answerer{
				flags:     &s,
				printed:   &printed,
				write:     write,
				highlight: printed.highlight,
			}
			return a.searchStore(ctx, store, args, &words, answers, o, printed.stats)
		}
		if paths, err := names.indexPaths(args[0]); err != nil {
			return err
		} else if len(paths) > 1 && words.SearchesWords() {
			return flags.Usagef("--keywords and --hybrid search one index; %s stands for %d", args[0], len(paths))
		}
		answers := &answerer{
			flags:     &s,
			printed:   &printed,
			write:     write,
			highlight: printed.highlight,
		}
		if words.WordsOnly() {
			return a.searchWords(ctx, args, &words, answers, o)
		}
		return a.search(ctx, &names, args, &words, answers, o, printed.stats)
	})
	return cmd
}

// search answers the queries with index files.
func (a *app) search(ctx context.Context, names *indexNames, args []string, words *flags.Words, answers *answerer,
	o search.Options, stats string) error {
	s := answers.flags
	return a.openSearched(ctx, names, args[0], func(target *searchTarget) (err error) {
		if err := answers.printed.checkIndex(ctx, target); err != nil {
			return err
		}
		if answers.queries, err = a.openQueries(ctx, &s.Queries, args[1:], target.snap, s.Threads,
			&s.Device); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, answers.queries.Close()) }()
		if err := answers.printed.checkIDs("query", answers.queries); err != nil {
			return err
		}
		if target.hasSeveralFiles() {
			answers.warn = a.printWarning
		}
		a.warnWithoutCandidates(s, answers.queries)
		if answers.highlight {
			answers.queries.highlighter = a.newHighlighter(answers.queries, target)
		}
		err = a.withSearcher(ctx, target, s.Threads, &s.Device, func(engine searcher) error {
			if !words.Hybrid {
				return answers.answerRemaining(ctx, engine, o, nil)
			}
			m, err := a.newWordSearch(ctx, words, target.snap, o)
			if err != nil {
				return err
			}
			return m.answerHybrid(ctx, args[1:], answers, engine, o)
		})
		if err != nil {
			return err
		}
		total := &answers.total
		if n := total.FilterMissing; n > 0 {
			a.printWarning("%s not in the index, and skipped",
				out.Plural(n, "id of --ids or --candidates is", "ids of --ids or --candidates are"))
		}
		a.logger().Info("searched", "queries", total.Queries, "took", roundDuration(total.Times.Total), "candidates",
			total.Candidates, "exact", total.ExactDocs)
		return a.printStats(stats, *total)
	})
}

// answerer answers queries and prints the results of each query once, even if the search starts
// again.
type answerer struct {
	flags   *flags.Search
	printed *resultFlags
	queries *openedQueries
	write   hitWriter
	// highlight reports whether the words that match are wanted.
	highlight bool
	// warn is called for a document that several files have. Nil means that a single file is
	// searched.
	warn func(format string, args ...any)

	// next is the first query without an answer.
	next   int
	total  search.Stats
	warned bool
}

// answerRemaining answers the queries that have no answer yet. refine, if not nil, changes results
// before they are printed.
func (w *answerer) answerRemaining(ctx context.Context, engine search.Searcher, o search.Options,
	refine func(*querySet, []search.Result) error) error {
	page := o.Page()
	if w.warn != nil { // earlier pages are needed to recognise their documents
		o.SetPage(search.Page{K: page.End(), Block: page.K})
	}
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
		w.cutToPage(page, results)
		for _, r := range results {
			w.total.Add(r.Stats)
		}
		if err := w.write(batch, results); err != nil {
			return err
		}
		w.next += len(batch.ids)
	}
	return nil
}

// cutToPage cuts results that begin at the first hit to a page. If several files have a document,
// such as an index and a copy of it, it keeps only the best hit.
func (w *answerer) cutToPage(page search.Page, results []search.Result) {
	if w.warn == nil {
		return
	}
	for i := range results {
		seen, r := map[string]int{}, &results[i]
		toSkip := page.Offset
		r.K, r.Offset = page.K, page.Offset
		r.Hits = slices.DeleteFunc(r.Hits, func(h search.Hit) bool {
			toSkip--
			shard, seenBefore := seen[h.ID]
			if seenBefore && shard != h.Shard && !w.warned {
				w.warned = true
				w.warn("document %q is in more than one of the files: such documents are shown once, and results "+
					"are fewer; is one file a copy of another?", h.ID)
			}
			seen[h.ID] = h.Shard
			return seenBefore || toSkip >= 0 || !page.HasMinScore(h.Score)
		})
	}
}

// answerBatch searches a batch. If candidates differ from query to query, it searches the queries
// one by one.
func answerBatch(ctx context.Context, e search.Searcher, s *flags.Search, batch *querySet,
	o search.Options) ([]search.Result, error) {
	if !s.PerQuery() {
		results, err := e.SearchBatch(ctx, batch.queries, o)
		return results, batch.withQueryName(err)
	}
	results := make([]search.Result, len(batch.queries))
	for i, q := range batch.queries {
		r, err := e.Search(ctx, q, s.ForQuery(o, batch.ids[i]))
		if err != nil {
			return nil, fmt.Errorf("query %q: %w", batch.ids[i], err)
		}
		results[i] = *r
	}
	return results, nil
}

// warnWithoutCandidates warns of queries that have no candidates.
func (t *stdio) warnWithoutCandidates(s *flags.Search, queries vectors.Source) {
	n, first := s.CountWithoutCandidates(queries)
	t.warnOfMissingQueries(n, first, s.Candidates)
}

// warnOfMissingQueries warns of n queries that a run lacks; first is the id of the first one.
func (t *stdio) warnOfMissingQueries(n int, first, runPath string) {
	switch {
	case n == 1:
		t.printWarning("query %q is not in %s: it has no candidates", first, runPath)
	case n > 1:
		t.printWarning("%d queries (%q is the first) are not in %s: they have no candidates", n, first, runPath)
	}
}

// printStats writes the statistics of all searches to stderr.
func (t *stdio) printStats(format string, s search.Stats) error {
	var b bytes.Buffer
	switch format {
	case "":
		return nil
	case "json":
		line, err := out.TypedJSONLine("stats", s)
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

// statsTable formats statistics for reading.
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
	count("… queries that took the worst bound", s.WorstBound)
	for _, p := range s.Shards {
		count(fmt.Sprintf("hits of file %d", p.Shard), p.Hits)
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
	type stageTime struct {
		name string
		ns   int64
	}
	times := func(list []stageTime) {
		for _, stage := range list {
			table.Line("time: "+stage.name, fmt.Sprintf("%.2f ms", float64(stage.ns)/1e6),
				fmt.Sprintf("%.3f ms", float64(stage.ns)/1e6/float64(n)))
		}
	}
	if device := s.Device; device != nil {
		deviceTimes := device.Times
		times([]stageTime{
			{"device, waiting", int64(deviceTimes.Wait)},
			{"device, copies and launches", int64(deviceTimes.Transfer)},
			{"device, centroid scores", int64(deviceTimes.Centroids)},
			{"device, probe", int64(deviceTimes.Probe)}, {"device, scan", int64(deviceTimes.Scan)},
			{"device, choice", int64(deviceTimes.TopK)}, {"device, fine scores", int64(deviceTimes.Fine)},
			{"device, all", int64(deviceTimes.Total)},
		})
	}
	t := s.Times
	times([]stageTime{
		{"centroid scores", int64(t.Centroids)}, {"probe", int64(t.Probe)}, {"approximate", int64(t.Approx)},
		{"exact", int64(t.Exact)}, {"refine", int64(t.Refine)}, {"all stages", int64(t.Total)},
	})
	table.Print(b)
}
