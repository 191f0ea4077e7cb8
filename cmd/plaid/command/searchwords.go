package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// wordSearch searches by the words of questions, and fuses the results with those by vectors.
type wordSearch struct {
	app   *app
	flags *flags.Words
	// options are those of the final results.
	options search.Options
	// docCount is the number of documents and passages.
	docCount int
	// open prepares the keywords for rank and calls use. It may call use again, which then
	// continues where it was.
	open func(ctx context.Context, use func() error) error
	// rank searches for the words of a text: it returns documents, or, with a group, documents of
	// passages.
	rank func(ctx context.Context, text string, k int) ([]search.Hit, error)
	// payload reads the payload of a hit. Nil means that hits come with it.
	payload func(h *search.Hit) (search.Payload, error)
	// engine finds the tokens of hits that match, for highlights.
	engine search.Searcher
	// questionsByID are the texts of queries that are vectors, by the ids of the queries.
	questionsByID map[string]string
}

// newWordSearch returns the word search of an index file.
func (a *app) newWordSearch(
	ctx context.Context, f *flags.Words, snap *index.Snapshot, o search.Options,
) (*wordSearch, error) {
	m := &wordSearch{
		app:      a,
		flags:    f,
		options:  o,
		docCount: snap.Len(),
	}
	m.payload = func(h *search.Hit) (search.Payload, error) {
		p, err := snap.Payload(h.Ordinal)
		return p, err
	}
	var filter *roaring.Bitmap
	if o.Filter != nil {
		var err error
		if filter, err = o.Filter.Ordinals(ctx, snap); err != nil {
			return nil, err
		}
	}
	m.open = func(ctx context.Context, use func() error) error {
		return a.withKeywords(ctx, snap, nil, false, func(kw *keywords.Index) error {
			m.rank = func(ctx context.Context, text string, k int) (hits []search.Hit, err error) {
				rankKeywords := func(k int) ([]keywords.ScoredDocument, error) {
					q := f.Query(k)
					q.Text, q.Filter = text, filter
					return kw.Search(ctx, q)
				}
				if o.Group != "" {
					return search.RankWords(ctx, snap, k, o.Passages, o.Payload, rankKeywords)
				}
				scored, err := rankKeywords(k)
				hits = make([]search.Hit, len(scored))
				for i, h := range scored {
					hits[i] = search.Hit{ID: snap.ID(h.Ordinal), Ordinal: h.Ordinal, Score: h.Score}
				}
				return hits, err
			}
			return use()
		})
	}
	return m, nil
}

// readQuestions reads questions in their order. A question without an id gets the number of its
// row.
func (a *app) readQuestions(
	ctx context.Context, f *flags.Queries, questions []string,
) (ids, texts []string, err error) {
	seen := map[string]bool{}
	for text, err := range f.Texts(ctx, questions, a.in) {
		if err != nil {
			return nil, nil, err
		}
		id := cmp.Or(text.ID, strconv.Itoa(len(ids)))
		if seen[id] {
			return nil, nil, &encode.TextError{
				Path: f.Questions,
				Row:  len(ids),
				ID:   id,
				Err:  errors.New("the id is used twice"),
			}
		}
		seen[id] = true
		ids, texts = append(ids, id), append(texts, text.Full())
	}
	if len(ids) == 0 {
		return nil, nil, noQueriesError(f.Questions)
	}
	return ids, texts, nil
}

// readQuestionsOfVectors reads the questions of queries that are vectors: those of a file by their
// ids, arguments in their order.
func (m *wordSearch) readQuestionsOfVectors(ctx context.Context, f *flags.Queries, questions []string,
	q *openedQueries) error {
	ids, texts, err := m.app.readQuestions(ctx, f, questions)
	if err != nil {
		return err
	}
	if f.Questions == "" && len(ids) != q.Len() {
		return flags.Usagef("there are %s for %s of --queries: give one for each, or --questions with their ids",
			out.Plural(len(ids), "question"), out.Plural(q.Len(), "query", "queries"))
	}
	m.questionsByID = make(map[string]string, len(ids))
	for i, id := range ids {
		if f.Questions == "" {
			id = q.ID(i)
		}
		m.questionsByID[id] = texts[i]
	}
	for i := range q.Len() {
		if id := q.ID(i); m.questionsByID[id] == "" {
			return fmt.Errorf("query %q has no text in %s: %w; --query-ids names the queries", id, f.Questions,
				errNotFound)
		}
	}
	return nil
}

// questionText returns the words to search for with query i of a batch.
func (m *wordSearch) questionText(batch *querySet, i int) string {
	if batch.questions != nil {
		return batch.questions[i]
	}
	return m.questionsByID[batch.ids[i]]
}

// fuseBatch fuses the results of a batch by vectors with the results by the words of its questions.
func (m *wordSearch) fuseBatch(ctx context.Context, batch *querySet, results []search.Result) error {
	p := m.options.Page()
	rankingPage := p.RankingPage(m.docCount)
	for i := range results {
		wordHits, err := m.rankWords(ctx, m.questionText(batch, i), rankingPage.K)
		if err == nil {
			var fused []search.RankedHit
			allScores := search.Page{Offset: p.Offset, K: p.K}
			vectorHits := search.RankedHits(results[i].Hits)
			fused, err = m.flags.Fuse(vectorHits, search.RankedHits(wordHits), allScores, rankingPage)
			if err == nil {
				fused = slices.DeleteFunc(fused, func(h search.RankedHit) bool {
					return !p.HasMinScore(float32(h.Score)) // the score that is printed
				})
				results[i].Hits, err = m.completeHits(ctx, batch, i, fused)
				results[i].K, results[i].Offset = p.K, p.Offset
			}
		}
		if err != nil {
			return fmt.Errorf("query %q: %w", batch.displayName(i), err)
		}
	}
	return nil
}

// rankWords calls rank and turns errors in the question into errors of the command line.
func (m *wordSearch) rankWords(ctx context.Context, text string, k int) ([]search.Hit, error) {
	hits, err := m.rank(ctx, text, k)
	switch {
	case errors.Is(err, keywords.ErrSyntax):
		err = flags.UsageError{Err: fmt.Errorf("%q: %w", text, err)}
	case errors.Is(err, keywords.ErrTooLong):
		err = flags.UsageError{Err: err}
	}
	return hits, err
}

// completeHits adds to ranked hits what hits by vectors have: payloads and, for highlights,
// matches.
func (m *wordSearch) completeHits(ctx context.Context, batch *querySet, i int,
	ranked []search.RankedHit) ([]search.Hit, error) {
	if batch.highlighter != nil {
		err := search.MatchRanked(ranked, func(o search.Options) ([]search.Hit, error) {
			r, err := m.engine.Search(ctx, batch.queries[i], o)
			if err != nil {
				return nil, err
			}
			return r.Hits, nil
		})
		if err != nil {
			return nil, err
		}
	}
	hits := make([]search.Hit, len(ranked))
	for j := range ranked {
		h := &hits[j]
		*h = ranked[j].Hit
		h.Score = float32(ranked[j].Score)
		if m.options.Payload && m.options.Group == "" && m.payload != nil {
			var err error
			if h.Payload, err = m.payload(h); err != nil {
				return nil, err
			}
		}
	}
	return hits, nil
}

// answerHybrid answers queries by vectors and by words.
func (m *wordSearch) answerHybrid(ctx context.Context, questions []string, answers *answerer, engine search.Searcher,
	o search.Options) error {
	if answers.queries.texts == nil {
		if err := m.readQuestionsOfVectors(ctx, &answers.flags.Queries, questions, answers.queries); err != nil {
			return err
		}
	}
	m.engine = engine
	o.SetPage(o.Page().RankingPage(m.docCount))
	// Matches, and payloads that can be read later, are added to the fused hits alone.
	o.Payload, o.Matches = o.Payload && (o.Group != "" || m.payload == nil), false
	return m.open(ctx, func() error {
		return answers.answerRemaining(ctx, engine, o, func(batch *querySet, results []search.Result) error {
			return m.fuseBatch(ctx, batch, results)
		})
	})
}

// searchWords answers questions by their words alone.
func (a *app) searchWords(ctx context.Context, args []string, f *flags.Words, answers *answerer,
	o search.Options) error {
	return a.openSearched(ctx, &indexNames{}, args[0], func(target *searchTarget) error {
		m, err := a.newWordSearch(ctx, f, target.snap, o)
		if err != nil {
			return err
		}
		ids, texts, err := a.readQuestions(ctx, &answers.flags.Queries, args[1:])
		if err != nil {
			return err
		}
		if err := answers.printed.checkIndex(ctx, target); err != nil {
			return err
		}
		for _, id := range ids {
			if err := answers.printed.checkID("query", id); err != nil {
				return err
			}
		}
		fromArguments := len(args) > 1
		if !answers.highlight {
			return m.answerWords(ctx, ids, texts, fromArguments, nil, answers.write)
		}
		return a.highlightWordHits(ctx, target, answers.flags, ids, texts,
			func(q *openedQueries, engine search.Searcher) error {
				m.engine = engine
				return m.answerWords(ctx, ids, texts, fromArguments, q, answers.write)
			})
	})
}

// answerWords answers questions by their words alone. fromArguments reports that the texts are
// arguments. encoded are the questions as vectors, for highlights, or nil if these are not wanted.
func (m *wordSearch) answerWords(ctx context.Context, ids, texts []string, fromArguments bool, encoded *openedQueries,
	write hitWriter) error {
	next := 0 // results before it were printed, and are not printed again if the keywords are rebuilt
	return m.open(ctx, func() error {
		for next < len(ids) {
			end := min(next+batchQueries, len(ids))
			batch, err := &querySet{}, error(nil)
			if encoded != nil {
				if batch, err = encoded.read(ctx, next, end); err != nil {
					return err
				}
			}
			batch.ids, batch.questions = ids[next:end], texts[next:end]
			if fromArguments {
				batch.questionArgs = batch.questions
			}
			results := make([]search.Result, end-next)
			p := m.options.Page()
			for i := range results {
				wordHits, err := m.rankWords(ctx, batch.questions[i], p.End())
				if err == nil {
					results[i].Offset = p.Offset
					results[i].Hits, err = m.completeHits(ctx, batch, i, search.RankedHits(p.Hits(wordHits)))
				}
				if err != nil {
					return fmt.Errorf("query %q: %w", batch.displayName(i), err)
				}
			}
			if err := write(batch, results); err != nil {
				return err
			}
			next = end
		}
		return nil
	})
}
