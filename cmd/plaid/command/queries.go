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

// querySet is a set of queries in memory: a batch, or all queries of a command that measures.
type querySet struct {
	ids []string
	// questionArgs are the texts of questions that are arguments, or nil for others.
	questionArgs []string
	// questions are the texts of all questions, or nil for vectors.
	questions []string
	queries   []search.Query
	// highlighter finds the words that match. Nil means that they are not wanted.
	highlighter *highlighter
	// serviceSpans are the words that match, as a service has returned them, or nil if no service was
	// asked.
	serviceSpans map[*search.Hit][]highlight.Span
}

// matchedSpans returns the words of a hit that match query i, or none if they are not wanted.
func (q *querySet) matchedSpans(i int, h *search.Hit) ([]highlight.Span, error) {
	if q.highlighter == nil {
		return q.serviceSpans[h], nil
	}
	return q.highlighter.findSpans(q.questions[i], h)
}

// displayName returns the name of a query in results: its text if that was an argument, or else its
// id.
func (q *querySet) displayName(i int) string {
	if q.questionArgs != nil {
		return q.questionArgs[i]
	}
	return q.ids[i]
}

// withQueryName replaces the number of a query in an error with the query's name.
func (q *querySet) withQueryName(err error) error {
	if conditionError := (*condition.Error)(nil); errors.As(err, &conditionError) {
		return fmt.Errorf("--where: %w", conditionError) // it concerns all queries
	}
	if queryError := (*search.QueryError)(nil); errors.As(err, &queryError) && queryError.Index < len(q.ids) {
		return fmt.Errorf("query %q: %w", q.displayName(queryError.Index), queryError.Err)
	}
	return err
}

// openedQueries are the queries of a command: vectors, or texts together with the encoder that
// encoded them.
type openedQueries struct {
	vectors.Source
	// sourceName is the name of the queries' file, of the flag, or of stdin.
	sourceName string
	// model is the model that made the vectors, or nil if it is unknown.
	model   *storage.Model
	encoder *encode.Encoder
	// texts are the questions, or nil if the queries are vectors.
	texts []string
	// fromArguments reports that the questions are arguments of the command.
	fromArguments bool
	highlighter   *highlighter

	// warnOfZeros is called for the first query with a zero vector, or nil after that.
	warnOfZeros func(format string, args ...any)
}

// Close closes the queries and the encoder.
func (q *openedQueries) Close() error {
	err := q.Source.Close()
	if q.encoder != nil {
		err = errors.Join(err, q.encoder.Close())
	}
	return err
}

// openQueries opens the queries for an index and checks that they fit it. Texts are encoded by the
// model of the flags, or else by the model that the index names.
func (a *app) openQueries(ctx context.Context, f *flags.Queries, questions []string, snap *index.Snapshot,
	threads int, d *flags.Device) (*openedQueries, error) {
	q, err := a.openQueriesFor(ctx, f, questions, threads, d,
		func() (*storage.Model, string, error) { return snap.Header().Model, snap.Path(), nil })
	if err != nil {
		return nil, err
	}
	if err := q.checkFor(snap); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// openQueriesFor opens the queries. indexModel returns the model and the name of the searched
// index. Texts are encoded on the device d.
func (a *app) openQueriesFor(ctx context.Context, f *flags.Queries, questions []string, threads int, d *flags.Device,
	indexModel func() (*storage.Model, string, error)) (*openedQueries, error) {
	texts, err := f.AreTexts(questions)
	if err != nil {
		return nil, err
	}
	if !texts {
		q := &openedQueries{sourceName: f.Name(), warnOfZeros: a.printWarning}
		q.Source, err = f.Open(ctx, a.in, func() int {
			model, _, err := indexModel()
			if err != nil {
				return 0
			}
			return maxQueryTokens(model)
		})
		return q, err
	}
	hasBlank := func(q string) bool { return strings.ContainsAny(q, " \t") }
	if n := len(questions); n > 1 && !slices.ContainsFunc(questions, hasBlank) {
		a.printHint("%d questions of one word each; put quotes around several words to make them one question", n)
	}
	model, indexName, err := indexModel()
	if err != nil {
		return nil, err
	}
	q, err := a.openTextQueries(ctx, &f.Encoder, f.Texts(ctx, questions, a.in), f.Name(), threads, d, model, indexName)
	if err == nil {
		q.fromArguments = len(questions) > 0
	}
	return q, err
}

// openTextQueries encodes texts, by the model of the flags or else by that of an index.
func (a *app) openTextQueries(ctx context.Context, f *flags.Encoder, texts iter.Seq2[encode.Text, error], name string,
	threads int, d *flags.Device, indexModel *storage.Model, indexName string) (*openedQueries, error) {
	enc, model, err := a.openEncoder(ctx, f, indexName, flags.Opening{
		IndexModel: indexModel,
		Threads:    threads,
		OpenDevice: a.deviceOpener(d),
		Queries:    true,
	})
	if err != nil {
		return nil, err
	}
	encoded, err := a.encodeQueries(ctx, enc, texts, name, false)
	if err != nil {
		return nil, errors.Join(err, enc.Close())
	}
	return &openedQueries{
		Source:      encoded.Spool,
		sourceName:  name,
		model:       model,
		texts:       encoded.texts,
		encoder:     enc,
		warnOfZeros: a.printWarning,
	}, nil
}

// maxQueryTokens returns the maximum number of tokens that a model makes of a query, or 0 if its
// folder does not say.
func maxQueryTokens(model *storage.Model) int {
	if model == nil || model.Name == "" || modelof.IsServer(model.Name) {
		return 0
	}
	dir, o, err := modelof.Options(model)
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

// openEncoder opens the model of the flags, or else the model that made the vectors of an index.
// indexName is "" without an index.
func (a *app) openEncoder(ctx context.Context, f *flags.Encoder, indexName string,
	opening flags.Opening) (*encode.Encoder, *storage.Model, error) {
	indexModel := opening.IndexModel
	if indexName != "" && !f.HasModel() && (indexModel == nil || indexModel.Name == "") {
		return nil, nil, fmt.Errorf("%s does not name the model of its vectors: %w", indexName,
			flags.MissingModelError())
	}
	opening.Logger, opening.Hub = a.logger(), a.modelHub()
	e, m, err := f.Open(ctx, opening)
	if err != nil {
		return nil, nil, err
	}
	if indexModel != nil && indexModel.Fingerprint == m.NearFingerprint && indexModel.Fingerprint != "" {
		a.printHint("queries are encoded in %s, the index in %s: their vectors agree to a cosine of .9999",
			m.Precision, indexModel.Precision)
	}
	return e, m, nil
}

// openForMeasuring opens an index, or several, reads all queries, and hands both to use with a
// searcher. Queries are encoded on encodeDevice and searched on searchDevice. Nil means the
// processor.
func (a *app) openForMeasuring(ctx context.Context, names *indexNames, path string, f *flags.Queries, threads int,
	encodeDevice, searchDevice *flags.Device, use func(searcher, *searchTarget, *querySet) error) error {
	if _, err := f.AreTexts(nil); err != nil {
		return err
	}
	return a.openSearched(ctx, names, path, func(target *searchTarget) (err error) {
		opened, err := a.openQueries(ctx, f, nil, target.snap, threads, encodeDevice)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, opened.Close()) }()
		set, err := opened.read(ctx, 0, opened.Len())
		if err != nil {
			return err
		}
		return a.withSearcher(ctx, target, threads, searchDevice, func(e searcher) error {
			return set.withQueryName(use(e, target, set))
		})
	})
}

// checkDimensionKnown returns an error for an index that has no dimension yet.
func checkDimensionKnown(snap *index.Snapshot) error {
	if collection.Undecided(snap) {
		return noVectorsError(snap.Path())
	}
	return nil
}

// noVectorsError returns the error about an index that has no vectors, and so no dimension.
func noVectorsError(name string) error {
	return fmt.Errorf("%s: %w: it has no vectors yet; the service that created it accepts the first ones", name,
		index.ErrDimension)
}

// checkFor returns an error if the queries do not fit an index.
func (q *openedQueries) checkFor(snap *index.Snapshot) error {
	dim := snap.Dim()
	if collection.Undecided(snap) {
		dim = 0
	}
	return checkQueries(q, snap.Path(), snap.Header().Model, dim)
}

// checkQueries returns an error if the queries do not fit an index, given its model and its
// dimension, 0 if it has none yet. It finds all such errors before any query is answered.
func checkQueries(queries *openedQueries, indexName string, indexModel *storage.Model, dim int) error {
	if queries.Len() == 0 {
		return noQueriesError(queries.sourceName)
	}
	if err := indexModel.CheckQueries(queries.model); err != nil {
		return fmt.Errorf("%s: %w", queries.sourceName, err)
	}
	if dim == 0 {
		return noVectorsError(indexName)
	}
	if d := queries.Dim(); d != 0 && d != dim {
		return fmt.Errorf("%s: %w: queries have %d, %s has %d", queries.sourceName, index.ErrDimension, d, indexName,
			dim)
	}
	for i := range queries.Len() {
		if queries.Rows(i) == 0 {
			return fmt.Errorf("%s: query %q: %w: it has no tokens", queries.sourceName, queries.ID(i), search.ErrQuery)
		}
	}
	return nil
}

var errNoQueries = errors.New("the file has no queries")

// noQueriesError returns the error about a file without queries.
func noQueriesError(name string) error { return fmt.Errorf("%s: %w", name, errNoQueries) }

// hasZeroVector reports whether one of the token vectors is zero.
func hasZeroVector(tokens []float32, dim int) bool {
	for row := range slices.Chunk(tokens, dim) {
		if !slices.ContainsFunc(row, func(v float32) bool { return v != 0 }) {
			return true
		}
	}
	return false
}

// read reads the queries lo to hi-1.
func (q *openedQueries) read(ctx context.Context, lo, hi int) (*querySet, error) {
	set := &querySet{highlighter: q.highlighter}
	for d, err := range q.Docs(ctx, lo, hi) {
		if err != nil {
			return nil, err
		}
		if q.warnOfZeros != nil && hasZeroVector(d.Tokens, q.Dim()) {
			q.warnOfZeros("query %q of %s has token vectors that are zero and do not change any score: are they "+
				"padding? "+
				"--query-lengths gives the number of real tokens", d.ID, q.sourceName)
			q.warnOfZeros = nil
		}
		set.queries = append(set.queries, search.Query{Vectors: append([]float32(nil), d.Tokens...), Dim: q.Dim(),
			Model: q.model})
		set.ids = append(set.ids, d.ID)
	}
	if q.texts != nil {
		set.questions = q.texts[lo:hi]
	}
	if q.fromArguments {
		set.questionArgs = q.texts[lo:hi]
	}
	return set, nil
}

// encodedQueries are questions as vectors, with their texts.
type encodedQueries struct {
	*vectors.Spool
	texts     []string
	truncated int
}

// queryBatch is the number of queries that are encoded before progress is shown and the context is
// checked.
const queryBatch = 256

// encodeQueries encodes texts as queries. Empty texts and duplicate ids are errors; sourceName is the
// name of the texts in them.
func (a *app) encodeQueries(
	ctx context.Context, e *encode.Encoder, texts iter.Seq2[encode.Text, error], sourceName string, float16 bool,
) (_ *encodedQueries, err error) {
	queryTexts, err := readQueries(texts, e, sourceName)
	if err != nil {
		return nil, err
	}
	q := &encodedQueries{}
	var show func(out.Texts)
	if !a.quiet {
		show = out.TextProgress(a.console, a.now)
	}
	// docs encodes the texts in batches.
	docs := func(yield func(vectors.Document, error) bool) {
		tokens := int64(0)
		for lo := 0; lo < len(queryTexts); lo += queryBatch {
			batchTexts := queryTexts[lo:min(lo+queryBatch, len(queryTexts))]
			batch := make([]string, len(batchTexts))
			for i, t := range batchTexts {
				batch[i] = t.Text
			}
			embeddings, err := e.Queries(ctx, batch)
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			for i, embedding := range embeddings {
				if len(embedding.Vectors) == 0 {
					err = batchTexts[i].ErrorAt(lo+i, errEmptyQuery)
				}
				if embedding.Dropped > 0 {
					q.truncated++
				}
				tokens += int64(len(embedding.Tokens))
				q.texts = append(q.texts, batchTexts[i].Text)
				if !yield(vectors.Document{ID: batchTexts[i].ID, Tokens: embedding.Vectors}, err) || err != nil {
					return
				}
			}
			if show != nil { // queries are short: their number stands for their bytes
				show(out.Texts{
					Done:     lo + len(batchTexts),
					Total:    len(queryTexts),
					Bytes:    int64(lo + len(batchTexts)),
					AllBytes: int64(len(queryTexts)),
					Tokens:   tokens,
				})
			}
		}
	}
	q.Spool, err = vectors.SpoolDocuments(ctx, e.Dim(), docs, &vectors.SpoolOptions{Float16: float16})
	if err != nil {
		return nil, err
	}
	if q.truncated > 0 {
		c := e.Config()
		a.printWarning("%s of %s cut at %s", out.Count(q.truncated),
			out.Plural(len(queryTexts), "query was", "queries were"),
			c.QueryLimit("--query-length"))
	}
	return q, nil
}

// readQueries reads the texts that encodeQueries encodes, and returns an error for an empty text or
// a duplicate id.
func readQueries(
	texts iter.Seq2[encode.Text, error], e *encode.Encoder, sourceName string,
) (list []encode.Text, err error) {
	defer func() {
		if textError := (*encode.TextError)(nil); errors.As(err, &textError) && textError.Path == "" {
			textError.Path = sourceName
		}
	}()
	var empty error // about the first empty text; errors of reading, such as a missing field, come first
	for t, err := range texts {
		if err != nil {
			return nil, err
		}
		t.Title, t.Text, t.Payload = "", t.Full(), nil
		if empty == nil && strings.TrimSpace(t.Text) == "" && (t.Text == "" || !e.Config().KeepSpace) {
			empty = t.ErrorAt(len(list), errEmptyQuery)
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
