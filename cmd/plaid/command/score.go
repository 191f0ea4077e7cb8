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
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // the backends
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// scoreFlags say what plaid score scores.
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
	f.StringVar(&s.candidates, "candidates", "", "TREC run `FILE` with the documents to score for each query (default: all)")
	f.BoolVar(&s.normalize, "normalize", false, "divide every token vector by its length first")
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
Score documents that are plain token vectors in files with exact MaxSim, and
print the best for each query: all documents, or with --candidates those that a
TREC run lists for it, which reranks the run. Documents need not fit in memory:
arrays of 16-bit and 32-bit floats are mapped, others read block by block. A
document without tokens is never printed.

The scores are of float32 products. A vector counts as it is unless --normalize
is given.

Formats are those of plaid search: table is for reading, jsonl is one object a
query, trec has the columns query, Q0, document, rank, score and "plaid", and tsv
query, document, rank and score, whose ids may have blanks.`,
		Example: `  plaid score --queries queries.npy --vectors docs.npy --lengths doclens.npy --ids ids.txt -k 100 --format trec > exact.trec
  plaid score --queries queries.npy --query-ids qids.txt --vectors docs.npy --lengths doclens.npy --ids ids.txt --candidates bm25.trec -k 0`,
		Args: takes(),
	}
	s.register(cmd.Flags())
	printed.format.Register(cmd, "results", "table", "jsonl", "trec", "tsv") // the texts that grep shows are in indexes
	cmd.RunE = a.command(func(ctx context.Context, _ []string) error {
		write, err := a.newHitWriter(&printed)
		if err != nil {
			return err
		}
		return a.score(ctx, &s, &printed, write)
	})
	return cmd
}

func (a *app) score(ctx context.Context, s *scoreFlags, printed *resultFlags, write hitWriter) (err error) {
	if _, err := s.queries.AreTexts(nil); err != nil {
		return err
	}
	queries, err := s.queries.Open(ctx, a.in, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queries.Close()) }()
	docs, err := s.docs.Open(ctx, a.in, a.warn)
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
	x := &scoring{a: a, flags: s, docs: docs, lists: make([][]topk.Scored, queries.Len())}
	if err := x.readQueries(ctx, queries); err != nil {
		return err
	}
	if err := x.readCandidates(ctx, queries); err != nil {
		return err
	}
	if x.whole = wholeOf(docs); x.whole != nil {
		defer func() { err = errors.Join(err, x.whole.Close()) }()
	}
	dev, err := a.openDevice(ctx, &s.device)
	if err != nil {
		return err
	}
	if x.onDevice = dev != nil; x.onDevice {
		x.backend, err = maxsim.On(dev)
	} else {
		x.backend, err = maxsim.Select("")
	}
	if err != nil {
		return err
	}
	if err := x.run(ctx); err != nil {
		return err
	}
	return x.write(queries, write)
}

// scoring is one run of plaid score.
type scoring struct {
	a       *app
	flags   *scoreFlags
	backend maxsim.Backend
	// onDevice: the backend is that of a device.
	onDevice bool
	docs     vectors.Source
	whole    *wholeDocs // the documents, where they are mapped
	queries  *maxsim.Batch
	wanted   map[string][]int32 // the queries that want a document; nil: all
	top      *maxsim.Top        // where all documents are scored
	lists    [][]topk.Scored    // of each query, where there are candidates
}

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
		return noQueries(x.flags.queries.Vectors)
	}
	x.queries = maxsim.Packed(maxsim.Float32(values, queries.Dim()), offsets)
	return nil
}

// readCandidates reads the run. What it names that is not there is passed over, with a warning.
func (x *scoring) readCandidates(ctx context.Context, queries vectors.Source) error {
	if x.flags.candidates == "" {
		return nil
	}
	run, err := files.Parse(ctx, x.flags.candidates, eval.ReadRun)
	if err != nil {
		return err
	}
	x.wanted = map[string][]int32{}
	without, first := 0, ""
	for i := range queries.Len() {
		id := queries.ID(i)
		if !run.Has(id) {
			if without++; without == 1 {
				first = id
			}
		}
		for _, h := range run.Hits(id) {
			x.wanted[h.Doc] = append(x.wanted[h.Doc], int32(i))
		}
	}
	x.a.warnOfQueries(without, first, x.flags.candidates)
	missing := make(map[string]bool, len(x.wanted))
	for id := range x.wanted {
		missing[id] = true
	}
	for i := range x.docs.Len() {
		delete(missing, x.docs.ID(i))
	}
	if len(missing) == 0 {
		return nil
	}
	x.a.warn("%s: of the documents that it lists %s not in %s, such as %q, and passed over", x.flags.candidates,
		out.Plural(len(missing), "is", "are"), strings.Join(x.flags.docs.Vectors, ", "), slices.Min(slices.Collect(maps.Keys(missing))))
	return nil
}

// scoreBlock is how many values of documents are a block: one is scored while the next is read.
// That of a device is what crosses the bus as one piece.
const (
	scoreBlock       = 1 << 22
	scoreBlockDevice = 1 << 24
)

// docBlock is documents as they were read.
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
	x.flags.k, x.top = k, maxsim.NewTop(k)
	// Those that a device wants are gathered, so that no others cross the bus.
	if x.whole != nil && !(x.onDevice && x.wanted != nil) {
		return x.scoreWhole(ctx)
	}
	same := func(b *docBlock) (*docBlock, error) { return b, nil }
	for b, err := range parallel.Map(ctx, x.read(ctx), 2, func(b *docBlock) int { return 4 * len(b.values) }, same) {
		if err == nil {
			err = x.block(ctx, maxsim.Packed(maxsim.Float32(b.values, x.queries.Tokens.Dim), b.offsets), func(i int) int { return b.ordinals[i] }, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read reads the documents that are scored, block by block.
func (x *scoring) read(ctx context.Context) iter.Seq2[*docBlock, error] {
	size := scoreBlock
	if x.onDevice {
		size = scoreBlockDevice
	}
	return func(yield func(*docBlock, error) bool) {
		b := &docBlock{offsets: []int{0}}
		i, dim := 0, max(x.docs.Dim(), 1)
		for d, err := range x.docs.Docs(ctx, 0, x.docs.Len()) {
			if err != nil {
				yield(nil, err)
				return
			}
			if x.wanted == nil || len(x.wanted[d.ID]) > 0 {
				b.values = append(b.values, d.Tokens...)
				b.offsets = append(b.offsets, len(b.values)/dim)
				b.ordinals = append(b.ordinals, i)
			}
			if i++; len(b.values) >= size {
				if !yield(b, nil) {
					return
				}
				b = &docBlock{values: make([]float32, 0, len(b.values)), offsets: []int{0}}
			}
		}
		yield(b, nil)
	}
}

func (x *scoring) terms() maxsim.Terms {
	return maxsim.Terms{Normalize: x.flags.normalize, Threads: x.flags.threads, Logger: x.a.warner()}
}

// block scores documents with all queries, or with those that want them; check, where it is not
// nil, finds what is wrong with one of these.
func (x *scoring) block(ctx context.Context, docs *maxsim.Batch, ordinal func(item int) int, check func(ordinal int) error) error {
	if x.wanted == nil {
		// Not held: what a device keeps for the next block would go with it.
		return x.top.Add(ctx, x.backend, x.queries, docs, x.terms())
	}
	var queries, items []int32
	for i := range docs.Len() {
		n := ordinal(i)
		wanted := x.wanted[x.docs.ID(n)]
		if len(wanted) == 0 || x.docs.Rows(n) == 0 {
			continue
		}
		if check != nil {
			if err := check(n); err != nil {
				return err
			}
		}
		for _, q := range wanted {
			queries, items = append(queries, q), append(items, int32(i))
		}
	}
	c := maxsim.Call{Q: x.queries, D: docs, Pairs: maxsim.Listed(queries, items), Terms: x.terms(), Scores: make([]float32, len(items))}
	if err := x.backend.Score(ctx, &c); err != nil {
		return err
	}
	for i, score := range c.Scores {
		q := queries[i]
		x.lists[q] = append(x.lists[q], topk.Scored{Doc: uint32(ordinal(int(items[i]))), Score: score})
	}
	return nil
}

// write prints the best of each query.
func (x *scoring) write(queries vectors.Source, write hitWriter) error {
	if x.wanted == nil {
		for q, hits := range x.top.Hits() {
			for _, h := range hits {
				x.lists[q] = append(x.lists[q], topk.Scored{Doc: uint32(h.Doc), Score: h.Score})
			}
		}
	}
	for lo := 0; lo < len(x.lists); lo += batchQueries {
		var ids []string
		var results []search.Result
		for q := lo; q < min(lo+batchQueries, len(x.lists)); q++ {
			slices.SortFunc(x.lists[q], topk.Order)
			var r search.Result
			for _, s := range x.lists[q][:min(x.flags.k, len(x.lists[q]))] {
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

// wholeDocs are documents that lie in memory as one matrix, because their file is
// mapped: nothing of it is read before it is scored.
type wholeDocs struct {
	*vectors.Mapped
	tokens maxsim.Matrix
}

// wholeOf maps documents, or returns nil if they can only be read.
func wholeOf(src vectors.Source) *wholeDocs {
	m := vectors.Map(src)
	if m == nil {
		return nil
	}
	switch {
	case m.Brain:
		return &wholeDocs{m, maxsim.BFloat16(m.U16, m.Dim)}
	case m.U16 != nil:
		return &wholeDocs{m, maxsim.Float16(m.U16, m.Dim)}
	}
	return &wholeDocs{m, maxsim.Float32(m.F32, m.Dim)}
}

// slice is the documents from to to.
func (w *wholeDocs) slice(from, to int) *maxsim.Batch {
	lo, hi := w.Starts[from], w.Starts[to]
	b := &maxsim.Batch{Tokens: w.tokens.Slice(lo, hi)}
	if w.Rows != nil { // padded
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

// checked checks documents on several threads.
func (w *wholeDocs) checked(ctx context.Context, from, to, threads int) error {
	const piece = 64
	return parallel.Do(ctx, parallel.Blocks(to-from, piece), threads, func(i int) error {
		lo, hi := parallel.Block(i, to-from, piece)
		return w.Check(ctx, from+lo, from+hi)
	})
}

// scoreWhole scores mapped documents; of those that are not wanted nothing is read.
func (x *scoring) scoreWhole(ctx context.Context) error {
	size := scoreBlock
	if x.onDevice || x.wanted != nil {
		size = 16 * scoreBlockDevice // the backend has pieces of its own
	}
	w, n := x.whole, x.docs.Len()
	for from := 0; from < n; {
		to := from + 1
		for to < n && (w.Starts[to+1]-w.Starts[from])*w.Dim <= size {
			to++
		}
		var err error
		if x.wanted == nil {
			err = w.checked(ctx, from, to, x.flags.threads)
		}
		if err == nil {
			err = x.block(ctx, w.slice(from, to), func(i int) int { return from + i }, func(i int) error { return w.Check(ctx, i, i+1) })
		}
		if err != nil {
			if changed := w.Unchanged(); changed != nil && errors.Is(err, maxsim.ErrFault) {
				return changed
			}
			return err
		}
		from = to
	}
	return w.Unchanged()
}
