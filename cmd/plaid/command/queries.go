package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modelof"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// querySet is queries in memory: a batch, or all of a command that measures.
type querySet struct {
	ids   []string
	texts []string // of questions that are arguments; nil for others
	words []string // of all questions that are texts; nil for others
	qs    []search.Query
	high  *highlighter // nil: no words are wanted
	// told are the words of hits as a service has told them; nil: it was not asked.
	told map[*search.Hit][]highlight.Span
}

// spans are the words of a hit of query i; none if they are not wanted.
func (q *querySet) spans(i int, h *search.Hit) ([]highlight.Span, error) {
	if q.high == nil {
		return q.told[h], nil
	}
	return q.high.spans(q.words[i], h)
}

// label is how results name a query to a reader: by its text if that was asked.
func (q *querySet) label(i int) string {
	if q.texts != nil {
		return q.texts[i]
	}
	return q.ids[i]
}

// named puts the id of a query in the place of its number in an error.
func (q *querySet) named(err error) error {
	if of := (*condition.Error)(nil); errors.As(err, &of) {
		return fmt.Errorf("--where: %w", of) // the same of each query
	}
	if failed := (*search.QueryError)(nil); errors.As(err, &failed) && failed.Index < len(q.ids) {
		return fmt.Errorf("query %q: %w", q.label(failed.Index), failed.Err)
	}
	return err
}

// queries are those of a command: vectors, or texts with what encoded them.
type queries struct {
	vectors.Source
	name    string         // of where they come from
	model   *storage.Model // what made them; nil if that is not known
	encoder *encode.Encoder
	texts   []string // nil where queries are vectors
	asked   bool     // texts are arguments of the command
	high    *highlighter

	warn func(format string, args ...any) // of zero vectors; nil: it has been done
}

// Close closes the encoder too.
func (q *queries) Close() error {
	err := q.Source.Close()
	if q.encoder != nil {
		err = errors.Join(err, q.encoder.Close())
	}
	return err
}

// openQueries opens the queries for an index. Texts are encoded, by the model that
// the index names if the flags name none.
func (a *app) openQueries(ctx context.Context, f *flags.Queries, questions []string, snap *index.Snapshot, threads int, d *flags.Device) (*queries, error) {
	q, err := a.queriesOf(ctx, f, questions, threads, d, func() (*storage.Model, string, error) { return snap.Header().Model, snap.Path(), nil })
	if err != nil {
		return nil, err
	}
	if err := q.checkFor(snap); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// queriesOf opens the queries for what searched names: its model, and itself. Texts are
// encoded on the device that is named.
func (a *app) queriesOf(ctx context.Context, f *flags.Queries, questions []string, threads int, d *flags.Device, searched func() (*storage.Model, string, error)) (*queries, error) {
	texts, err := f.AreTexts(questions)
	if err != nil {
		return nil, err
	}
	if !texts {
		q := &queries{name: f.Name(), warn: a.warn}
		q.Source, err = f.Open(ctx, a.in, func() int {
			made, _, err := searched()
			if err != nil {
				return 0
			}
			return queryLength(made)
		})
		return q, err
	}
	blank := func(q string) bool { return strings.ContainsAny(q, " \t") }
	if n := len(questions); n > 1 && !slices.ContainsFunc(questions, blank) {
		a.hint("%d questions of a word each; quotes around all words make them one question", n)
	}
	made, whose, err := searched()
	if err != nil {
		return nil, err
	}
	q, err := a.textQueries(ctx, &f.Encoder, f.Texts(ctx, questions, a.in), f.Name(), threads, d, made, whose)
	if err == nil {
		q.asked = len(questions) > 0
	}
	return q, err
}

// textQueries encodes texts, by the model of an index if none is named.
func (a *app) textQueries(ctx context.Context, f *flags.Encoder, texts iter.Seq2[encode.Text, error], name string, threads int, d *flags.Device, made *storage.Model, whose string) (*queries, error) {
	enc, model, err := a.openEncoder(ctx, f, whose, flags.Opening{IndexModel: made, Threads: threads, OpenDevice: a.on(d), Queries: true})
	if err != nil {
		return nil, err
	}
	encoded, err := a.encodeQueries(ctx, enc, texts, name, false)
	if err != nil {
		return nil, errors.Join(err, enc.Close())
	}
	return &queries{Source: encoded.Spool, name: name, model: model, texts: encoded.texts, encoder: enc, warn: a.warn}, nil
}

// queryLength is the most tokens of a query of a model, 0 where its folder does not tell.
func queryLength(of *storage.Model) int {
	if of == nil || of.Name == "" || modelof.IsServer(of.Name) {
		return 0
	}
	dir, o, err := modelof.Options(of)
	if err != nil {
		return 0
	}
	o.Hub = hub.FromEnv()
	o.Hub.Offline = "queries that are vectors need no model"
	c, err := encode.FindModel(context.Background(), dir, o)
	if err != nil {
		return 0
	}
	return c.Query.Length
}

// openEncoder opens the model that made the vectors of an index, or that of the flags;
// whose "" is no index.
func (a *app) openEncoder(ctx context.Context, f *flags.Encoder, whose string, how flags.Opening) (*encode.Encoder, *storage.Model, error) {
	made := how.IndexModel
	if whose != "" && !f.HasModel() && (made == nil || made.Name == "") {
		return nil, nil, fmt.Errorf("%s does not say which model made its vectors: %w", whose, flags.MissingModelError())
	}
	how.Logger, how.Hub = a.logger(), a.hub()
	e, m, err := f.Open(ctx, how)
	if err != nil {
		return nil, nil, err
	}
	if made != nil && made.Fingerprint == m.Near && made.Fingerprint != "" {
		a.hint("queries are encoded in %s, the index in %s: their vectors agree to a cosine of .9999", m.Precision, made.Precision)
	}
	return e, m, nil
}

// measure opens an index, or several, reads all queries and makes a searcher for use:
// on the devices that encode and that search, nil for the processor.
func (a *app) measure(ctx context.Context, names *indexes, path string, f *flags.Queries, threads int, encodes, searches *flags.Device, use func(searcher, *searched, *querySet) error) error {
	if _, err := f.AreTexts(nil); err != nil {
		return err
	}
	return a.openSearched(ctx, names, path, func(x *searched) (err error) {
		queries, err := a.openQueries(ctx, f, nil, x.snap, threads, encodes)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, queries.Close()) }()
		set, err := queries.read(ctx, 0, queries.Len())
		if err != nil {
			return err
		}
		return a.withSearcher(ctx, x, threads, searches, func(e searcher) error {
			return set.named(use(e, x, set))
		})
	})
}

// decided refuses an index that has no dimension yet.
func decided(snap *index.Snapshot) error {
	if collection.Undecided(snap) {
		return withoutVectors(snap.Path())
	}
	return nil
}

func withoutVectors(name string) error {
	return fmt.Errorf("%s: %w: it has no vectors yet; the service that has made it takes the first", name, index.ErrDimension)
}

// checkFor finds queries that do not fit an index file.
func (q *queries) checkFor(snap *index.Snapshot) error {
	dim := snap.Dim()
	if collection.Undecided(snap) {
		dim = 0
	}
	return checkQueries(q, snap.Path(), snap.Header().Model, dim)
}

// checkQueries finds queries that do not fit what is searched, before any is answered: its name, its model
// and its dimension, 0 if it has none yet.
func checkQueries(queries *queries, whose string, made *storage.Model, dim int) error {
	if queries.Len() == 0 {
		return noQueries(queries.name)
	}
	if err := made.CheckQueries(queries.model); err != nil {
		return fmt.Errorf("%s: %w", queries.name, err)
	}
	if dim == 0 {
		return withoutVectors(whose)
	}
	if d := queries.Dim(); d != 0 && d != dim {
		return fmt.Errorf("%s: %w: queries have %d, %s has %d", queries.name, index.ErrDimension, d, whose, dim)
	}
	for i := range queries.Len() {
		if queries.Rows(i) == 0 {
			return fmt.Errorf("%s: query %q: %w: it has no tokens", queries.name, queries.ID(i), search.ErrQuery)
		}
	}
	return nil
}

var errNoQueries = errors.New("the file has no queries")

func noQueries(name string) error { return fmt.Errorf("%s: %w", name, errNoQueries) }

func hasZeroVector(tokens []float32, dim int) bool {
	for row := range slices.Chunk(tokens, dim) {
		if !slices.ContainsFunc(row, func(v float32) bool { return v != 0 }) {
			return true
		}
	}
	return false
}

// read reads the queries from lo to hi (exclusive).
func (q *queries) read(ctx context.Context, lo, hi int) (*querySet, error) {
	set := &querySet{high: q.high}
	for d, err := range q.Docs(ctx, lo, hi) {
		if err != nil {
			return nil, err
		}
		if q.warn != nil && hasZeroVector(d.Tokens, q.Dim()) {
			q.warn("query %q of %s has token vectors that are zero, and add nothing to any score: padding? --query-lengths says what is a token", d.ID, q.name)
			q.warn = nil
		}
		set.qs = append(set.qs, search.Query{Vectors: append([]float32(nil), d.Tokens...), Dim: q.Dim(), Model: q.model})
		set.ids = append(set.ids, d.ID)
	}
	if q.texts != nil {
		set.words = q.texts[lo:hi]
	}
	if q.asked {
		set.texts = q.texts[lo:hi]
	}
	return set, nil
}

// encodedQueries are queries as vectors, with their texts.
type encodedQueries struct {
	*vectors.Spool
	texts     []string
	truncated int
}

// queryBatch is how many queries are encoded between two looks at the context and
// the progress.
const queryBatch = 256

// encodeQueries encodes texts as queries. One without a word is an error, and so
// are ids that come twice; from names where the texts are from in it.
func (a *app) encodeQueries(ctx context.Context, e *encode.Encoder, texts iter.Seq2[encode.Text, error], from string, float16 bool) (_ *encodedQueries, err error) {
	list, err := readQueries(texts, e, from)
	if err != nil {
		return nil, err
	}
	q := &encodedQueries{}
	var show func(out.Texts)
	if !a.quiet {
		show = out.TextProgress(a.console, a.now)
	}
	docs := func(yield func(vectors.Document, error) bool) {
		tokens := int64(0)
		for lo := 0; lo < len(list); lo += queryBatch {
			part := list[lo:min(lo+queryBatch, len(list))]
			batch := make([]string, len(part))
			for i, t := range part {
				batch[i] = t.Text
			}
			embeddings, err := e.Queries(ctx, batch)
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			for i, em := range embeddings {
				if len(em.Vectors) == 0 {
					err = part[i].Fault(lo+i, errEmptyQuery)
				}
				if em.Dropped > 0 {
					q.truncated++
				}
				tokens += int64(len(em.Tokens))
				q.texts = append(q.texts, part[i].Text)
				if !yield(vectors.Document{ID: part[i].ID, Tokens: em.Vectors}, err) || err != nil {
					return
				}
			}
			if show != nil {
				show(out.Texts{Done: lo + len(part), Total: len(list), Bytes: int64(lo + len(part)), AllBytes: int64(len(list)), Tokens: tokens})
			}
		}
	}
	q.Spool, err = vectors.Collect(ctx, e.Dim(), docs, &vectors.SpoolOptions{Float16: float16})
	if err != nil {
		return nil, err
	}
	if q.truncated > 0 {
		c := e.Config()
		a.warn("%s of %s cut at %s", out.Count(q.truncated), out.Plural(len(list), "query was", "queries were"),
			c.QueryLimit("--query-length"))
	}
	return q, nil
}

// readQueries reads texts that are going to be encoded as queries, and refuses what encodeQueries does.
func readQueries(texts iter.Seq2[encode.Text, error], e *encode.Encoder, from string) (list []encode.Text, err error) {
	defer func() {
		if te := (*encode.TextError)(nil); errors.As(err, &te) && te.Path == "" {
			te.Path = from
		}
	}()
	var empty error // of the first one; an error of reading, such as a missing field, comes before it
	for t, err := range texts {
		if err != nil {
			return nil, err
		}
		t.Title, t.Text, t.Payload = "", t.Full(), nil
		if empty == nil && strings.TrimSpace(t.Text) == "" && (t.Text == "" || !e.Config().KeepSpace) {
			empty = t.Fault(len(list), errEmptyQuery)
		}
		list = append(list, t)
	}
	if empty != nil {
		return nil, empty
	}
	_, err = encode.SurveyTexts(encode.Texts(list...))
	return list, err
}

var errEmptyQuery = errors.New("an empty query finds nothing")
