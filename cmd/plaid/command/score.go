package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // registers the backends of the processor
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// scoreFlags holds the flags of plaid score.
type scoreFlags struct {
	queries    flags.Queries
	docs       flags.Documents
	candidates string
	k          int
	normalize  bool
	threads    int
	device     flags.Device
}

func (s *scoreFlags) register(f *pflag.FlagSet) {
	s.queries.RegisterVectors(f)
	s.docs.RegisterScored(f)
	f.VarP(flags.Int(&s.k, 10, 0), "k", "k", "how many documents to return for a query (0: all)")
	f.StringVar(&s.candidates, "candidates", "",
		"TREC run `FILE` with the documents to score for each query (default: all)")
	f.BoolVar(&s.normalize, "normalize", false, "scale token vectors to unit length first")
	flags.Threads(f, &s.threads, 0)
	s.device.RegisterSearching(f)
}

func (a *app) scoreCommand() *cobra.Command {
	var s scoreFlags
	var printed resultFlags
	cmd := &cobra.Command{
		Use:   "score --queries FILE --vectors FILE",
		Short: "Score plain vectors from files, without an index",
		Long: `
Score documents that are token vectors in files with exact MaxSim, and print the best
ones for each query. All documents are scored, or, with --candidates, those that a TREC
run lists for the query, which reranks the run. Documents need not fit in memory: arrays
of 16-bit and 32-bit floats are mapped, others are read block by block. A document
without tokens is never printed.

Scores are computed in float32. Vectors are used as they are, unless --normalize is
given.

Formats are those of plaid search: table is for reading; jsonl has one object for each
query; trec has the columns query, Q0, document, rank, score and "plaid"; tsv has the
columns query, document, rank and score, and allows blanks in ids.`,
		Example: `  plaid score --queries queries.npy --vectors docs.npy --lengths doclens.npy --ids ids.txt -k 100
  plaid score --queries queries.npy --vectors docs.npy --lengths doclens.npy --candidates bm25.trec -k 0`,
		Args: namedArgs(),
	}
	s.register(cmd.Flags())
	// Only indexes have the texts that grep shows.
	printed.format.Register(cmd, "results", "table", "jsonl", "trec", "tsv")
	cmd.RunE = a.commandFunc(func(ctx context.Context, _ []string) error {
		write, err := a.newHitWriter(&printed)
		if err != nil {
			return err
		}
		return a.scoreFiles(ctx, &s, &printed, write)
	})
	return cmd
}

// scoreFiles scores documents in files for each query and prints the best ones.
func (a *app) scoreFiles(ctx context.Context, s *scoreFlags, printed *resultFlags, write hitWriter) (err error) {
	if _, err := s.queries.AreTexts(nil); err != nil {
		return err
	}
	// Open queries and documents, and check that they fit each other.
	queries, err := s.queries.Open(ctx, a.in, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queries.Close()) }()
	docs, err := s.docs.Open(ctx, a.in, a.printWarning)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, docs.Close()) }()
	if err := errors.Join(printed.checkIDs("query", queries), printed.checkIDs("document", docs)); err != nil {
		return err
	}
	q, d := queries.Dim(), docs.Dim()
	if q != d && q != 0 && d != 0 {
		return fmt.Errorf("%s: %w: queries have %d, documents %d", s.queries.Vectors, index.ErrDimension, q, d)
	}
	// Read queries and candidates; map the documents if that is possible.
	run := &scoring{
		app:    a,
		flags:  s,
		docs:   docs,
		scored: make([][]topk.Scored, queries.Len()),
	}
	if err := run.readQueries(ctx, queries); err != nil {
		return err
	}
	if err := run.readCandidates(ctx, queries); err != nil {
		return err
	}
	if run.mapped = mapDocs(docs); run.mapped != nil {
		defer func() { err = errors.Join(err, run.mapped.Close()) }()
	}
	// Select the backend, then score and print.
	dev, err := a.openDevice(ctx, &s.device)
	if err != nil {
		return err
	}
	if run.onDevice = dev != nil; run.onDevice {
		run.backend, err = maxsim.OnDevice(dev)
	} else {
		run.backend, err = maxsim.Select("")
	}
	if err != nil {
		return err
	}
	if err := run.run(ctx); err != nil {
		return err
	}
	return run.writeBest(queries, write)
}

// scoring is one run of plaid score.
type scoring struct {
	app     *app
	flags   *scoreFlags
	backend maxsim.Backend
	// onDevice reports whether the backend computes on a device.
	onDevice bool
	docs     vectors.Source
	// mapped are the documents, if their file is mapped, or nil otherwise.
	mapped  *mappedDocs
	queries *maxsim.Batch
	// queriesByDoc are the queries for which a document is a candidate, by its id. Nil means that
	// all documents are scored for all queries.
	queriesByDoc map[string][]int32
	// best keeps the best documents of each query if all documents are scored.
	best *maxsim.Top
	// scored are the scored candidates of each query; in the end, the best documents of each.
	scored [][]topk.Scored
}

// readQueries reads all queries into memory.
func (x *scoring) readQueries(ctx context.Context, queries vectors.Source) error {
	var values []float32
	offsets := []int{0}
	for d, err := range queries.Docs(ctx, 0, queries.Len()) {
		if err != nil {
			return err
		}
		if len(d.Tokens) == 0 {
			return fmt.Errorf("%s: query %q: %w: it has no tokens", x.flags.queries.Vectors, d.ID, search.ErrQuery)
		}
		values = append(values, d.Tokens...)
		offsets = append(offsets, len(values)/queries.Dim())
	}
	if len(offsets) == 1 {
		return noQueriesError(x.flags.queries.Vectors)
	}
	x.queries = maxsim.Packed(maxsim.Float32(values, queries.Dim()), offsets)
	return nil
}

// readCandidates reads the run of --candidates. It warns of documents that the run names and the
// files lack, and skips them.
func (x *scoring) readCandidates(ctx context.Context, queries vectors.Source) error {
	if x.flags.candidates == "" {
		return nil
	}
	run, err := files.Parse(ctx, x.flags.candidates, eval.ReadRun)
	if err != nil {
		return err
	}
	x.queriesByDoc = map[string][]int32{}
	withoutCandidates, first := 0, ""
	for i := range queries.Len() {
		id := queries.ID(i)
		if !run.Has(id) {
			if withoutCandidates++; withoutCandidates == 1 {
				first = id
			}
		}
		for _, h := range run.Hits(id) {
			x.queriesByDoc[h.Doc] = append(x.queriesByDoc[h.Doc], int32(i))
		}
	}
	x.app.warnOfMissingQueries(withoutCandidates, first, x.flags.candidates)
	missing := make(map[string]bool, len(x.queriesByDoc))
	for id := range x.queriesByDoc {
		missing[id] = true
	}
	for i := range x.docs.Len() {
		delete(missing, x.docs.ID(i))
	}
	if len(missing) == 0 {
		return nil
	}
	x.app.printWarning("%s: of the documents that it lists, %s not in %s, such as %q, and skipped", x.flags.candidates,
		out.Plural(len(missing), "is", "are"), strings.Join(x.flags.docs.Vectors, ", "),
		slices.Min(slices.Collect(maps.Keys(missing))))
	return nil
}

// hostBlockValues is the number of values in a block of documents: one block is scored while the
// next is read. deviceBlockValues is the number that crosses the bus to a device in one transfer.
const (
	hostBlockValues   = 1 << 22
	deviceBlockValues = 1 << 24
)

// docBlock is a block of documents that were read.
type docBlock struct {
	values   []float32
	offsets  []int
	ordinals []int
}

// run scores the documents, block by block.
func (x *scoring) run(ctx context.Context) error {
	k := x.flags.k
	if k == 0 {
		k = x.docs.Len()
	}
	x.flags.k, x.best = k, maxsim.NewTop(k)
	// For a device, candidates are copied together, so that no other documents cross the bus.
	if x.mapped != nil && !(x.onDevice && x.queriesByDoc != nil) {
		return x.scoreMapped(ctx)
	}
	identity := func(b *docBlock) (*docBlock, error) { return b, nil }
	for b, err := range parallel.Map(ctx, x.readBlocks(ctx), 2, func(b *docBlock) int { return 4 * len(b.values) },
		identity) {
		if err == nil {
			err = x.scoreBatch(ctx, maxsim.Packed(maxsim.Float32(b.values, x.queries.Tokens.Dim), b.offsets),
				func(i int) int { return b.ordinals[i] }, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readBlocks reads the documents to score, in blocks.
func (x *scoring) readBlocks(ctx context.Context) iter.Seq2[*docBlock, error] {
	size := hostBlockValues
	if x.onDevice {
		size = deviceBlockValues
	}
	return func(yield func(*docBlock, error) bool) {
		b := &docBlock{offsets: []int{0}}
		ordinal, dim := 0, max(x.docs.Dim(), 1)
		for d, err := range x.docs.Docs(ctx, 0, x.docs.Len()) {
			if err != nil {
				yield(nil, err)
				return
			}
			if x.queriesByDoc == nil || len(x.queriesByDoc[d.ID]) > 0 {
				b.values = append(b.values, d.Tokens...)
				b.offsets = append(b.offsets, len(b.values)/dim)
				b.ordinals = append(b.ordinals, ordinal)
			}
			if ordinal++; len(b.values) >= size {
				if !yield(b, nil) {
					return
				}
				b = &docBlock{values: make([]float32, 0, len(b.values)), offsets: []int{0}}
			}
		}
		yield(b, nil)
	}
}

// scoringTerms returns the options of the scoring.
func (x *scoring) scoringTerms() maxsim.Terms {
	return maxsim.Terms{Normalize: x.flags.normalize, Threads: x.flags.threads, Logger: x.app.warner()}
}

// scoreBatch scores documents for all queries, or, with candidates, for the queries that list them.
// ordinal returns the ordinal of an item of docs. check, if not nil, is called with each document
// before it is scored as a candidate, and returns an error for a bad one.
func (x *scoring) scoreBatch(ctx context.Context, docs *maxsim.Batch, ordinal func(item int) int,
	check func(ordinal int) error) error {
	if x.queriesByDoc == nil {
		// The batch must not be kept: releasing it would release what a device keeps for the next block.
		return x.best.Add(ctx, x.backend, x.queries, docs, x.scoringTerms())
	}
	var queries, items []int32
	for i := range docs.Len() {
		docOrdinal := ordinal(i)
		docQueries := x.queriesByDoc[x.docs.ID(docOrdinal)]
		if len(docQueries) == 0 || x.docs.Rows(docOrdinal) == 0 {
			continue
		}
		if check != nil {
			if err := check(docOrdinal); err != nil {
				return err
			}
		}
		for _, q := range docQueries {
			queries, items = append(queries, q), append(items, int32(i))
		}
	}
	c := maxsim.Call{
		Q:      x.queries,
		D:      docs,
		Pairs:  maxsim.Listed(queries, items),
		Terms:  x.scoringTerms(),
		Scores: make([]float32, len(items)),
	}
	if err := x.backend.Score(ctx, &c); err != nil {
		return err
	}
	for i, score := range c.Scores {
		q := queries[i]
		x.scored[q] = append(x.scored[q], topk.Scored{Doc: uint32(ordinal(int(items[i]))), Score: score})
	}
	return nil
}

// writeBest prints the best documents of each query.
func (x *scoring) writeBest(queries vectors.Source, write hitWriter) error {
	if x.queriesByDoc == nil {
		for q, hits := range x.best.Hits() {
			for _, h := range hits {
				x.scored[q] = append(x.scored[q], topk.Scored{Doc: uint32(h.Doc), Score: h.Score})
			}
		}
	}
	for lo := 0; lo < len(x.scored); lo += batchQueries {
		var ids []string
		var results []search.Result
		for q := lo; q < min(lo+batchQueries, len(x.scored)); q++ {
			slices.SortFunc(x.scored[q], topk.Order)
			var r search.Result
			for _, s := range x.scored[q][:min(x.flags.k, len(x.scored[q]))] {
				r.Hits = append(r.Hits, search.Hit{ID: x.docs.ID(int(s.Doc)), Ordinal: s.Doc, Score: s.Score})
			}
			ids, results = append(ids, queries.ID(q)), append(results, r)
		}
		if err := write(&querySet{ids: ids}, results); err != nil {
			return err
		}
	}
	return nil
}

// mappedDocs are documents in one matrix in memory, because their file is mapped: none of it is
// read before it is scored.
type mappedDocs struct {
	*vectors.Mapped
	tokens maxsim.Matrix
}

// mapDocs returns the documents as a matrix if their file is mapped, or nil if they have to be
// read.
func mapDocs(src vectors.Source) *mappedDocs {
	m := vectors.Map(src)
	if m == nil {
		return nil
	}
	switch {
	case m.IsBFloat16:
		return &mappedDocs{m, maxsim.BFloat16(m.U16, m.Dim)}
	case m.U16 != nil:
		return &mappedDocs{m, maxsim.Float16(m.U16, m.Dim)}
	}
	return &mappedDocs{m, maxsim.Float32(m.F32, m.Dim)}
}

// batch returns the documents from to to-1.
func (w *mappedDocs) batch(from, to int) *maxsim.Batch {
	lo, hi := w.Starts[from], w.Starts[to]
	b := &maxsim.Batch{Tokens: w.tokens.Slice(lo, hi)}
	if w.Rows != nil { // documents are padded to the same length
		b.Count, b.Lengths = to-from, w.Rows[from:to]
		b.Stride = (hi - lo) / max(b.Count, 1)
		return b
	}
	b.Offsets = make([]int, to-from+1)
	for i := range b.Offsets {
		b.Offsets[i] = w.Starts[from+i] - lo
	}
	return b
}

// checkParallel checks the values of documents on several threads.
func (w *mappedDocs) checkParallel(ctx context.Context, from, to, threads int) error {
	const docsPerTask = 64
	return parallel.Do(ctx, parallel.Blocks(to-from, docsPerTask), threads, func(i int) error {
		lo, hi := parallel.Block(i, to-from, docsPerTask)
		return w.Check(ctx, from+lo, from+hi)
	})
}

// scoreMapped scores mapped documents. Documents that are not candidates are not read.
func (x *scoring) scoreMapped(ctx context.Context) error {
	size := hostBlockValues
	if x.onDevice || x.queriesByDoc != nil {
		size = 16 * deviceBlockValues // the backend splits blocks itself
	}
	w, n := x.mapped, x.docs.Len()
	for from := 0; from < n; {
		to := from + 1
		for to < n && (w.Starts[to+1]-w.Starts[from])*w.Dim <= size {
			to++
		}
		var err error
		if x.queriesByDoc == nil {
			err = w.checkParallel(ctx, from, to, x.flags.threads)
		}
		if err == nil {
			err = x.scoreBatch(ctx, w.batch(from, to), func(i int) int { return from + i },
				func(i int) error { return w.Check(ctx, i, i+1) })
		}
		if err != nil {
			if changed := w.CheckUnchanged(); changed != nil && errors.Is(err, maxsim.ErrFault) {
				return changed
			}
			return err
		}
		from = to
	}
	return w.CheckUnchanged()
}
