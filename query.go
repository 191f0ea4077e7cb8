package plaid

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/vectors"
)

// Query is a question to a collection. Text or Vectors is required. The zero value of the other fields asks for the ten
// best documents.
type Query struct {
	// Text is the question. The model reads a limited number of tokens ([encode.Encoder.Config]). The rest of a longer
	// question is cut off, which Options.Logger logs. Searches by words, as with Hybrid, use all of it.
	Text string
	// Vectors are those of the question, [tokens, dim], row-major; Text is then not encoded. If Vectors is nil, it is.
	Vectors []float32
	// K is the maximum number of hits. 0 means 10.
	K int
	// Offset is how many of the best hits to skip: with 20 and a K of 10 the result is the third page of ten. The pages
	// of one state of the collection have each hit once.
	Offset int
	// MinScore leaves out hits with a lower Score: write MinScore: new(12.5). A nil MinScore leaves out none.
	MinScore *float64
	// Where is a condition over payloads ([condition.Parse]), and Args are the values of its question marks. Only
	// documents for which it is true are found. "" means no condition.
	Where string
	Args  []any
	// Hybrid also searches by the words of Text, and fuses both results. Alpha is the weight of vectors, above 0 and up
	// to 1; words have the rest. 0 means 0.75. Scores are from 0 to 1.
	Hybrid bool
	Alpha  float64
	// Keywords searches by the words of Text only, which needs no model. Scores are those of BM25.
	Keywords bool
	// Group says how a document stored as passages is scored. "" means by its best passage ([search.GroupBest]), which
	// is the only way for Keywords. A hit has at most Passages of its passages. 0 means 3. With [EachPassage], hits are
	// passages.
	Group    search.Grouping
	Passages int
	// Highlight finds the words of each hit, or of its passages, that match the question.
	Highlight bool
	// Feedback treats this many top hits as relevant, and searches again for similar ones. 0 means no
	// feedback. Like and Unlike are ids of documents that are known to be good and bad answers ([search.Feedback]).
	Feedback     int
	Like, Unlike []string
}

// EachPassage is a Query.Group that asks for passages: a document may have several hits.
const EachPassage search.Grouping = "passages"

// Hit is a document that a search has found, or one of its passages.
type Hit struct {
	ID    string  // of the document, or of the passage
	Score float64 // MaxSim; with Query.Hybrid from 0 to 1; with Query.Keywords BM25
	// Title, Text and Payload are those of the [Document].
	Title, Text string
	Payload     []byte
	// Passage is set if the hit is a passage of a longer document. It is nil if the hit is a document.
	Passage *vectors.Passage
	// Passages are the best passages of a document stored as passages. The title, text and payload of the hit are those
	// of the first one.
	Passages []Hit
	// Spans are the words that match the question, with Query.Highlight. If the document is stored as passages, its
	// passages have them. NoSpans is the reason for a lack of them, such as a document without text: one of the errors
	// of package highlight.
	Spans   []highlight.Span
	NoSpans error
}

const defaultK = 10

// Search finds the best documents, the best first. It returns fewer than K only if fewer match.
//
// Errors: [ErrQuery] for an empty question, [ErrOption], [ErrNotFound] for an id of Like or
// Unlike, those of [condition.Parse], of the encoder and of [search.Engine.Search].
func (c *Collection) Search(ctx context.Context, q Query) (hits []Hit, err error) {
	defer func() { err = c.toError(err) }()
	if err := q.completeAndCheck(); err != nil {
		return nil, err
	}
	var selection collection.Selection
	if q.Where != "" {
		if selection.Where, err = bindCondition(q.Where, q.Args); err != nil {
			return nil, err
		}
	}
	err = c.read(ctx, func(ctx context.Context, v *store.Snapshot) (err error) {
		r := &searchRun{coll: c, ctx: ctx, snapshot: v, query: &q}
		if r.filter, err = v.Filter(ctx, selection); err != nil {
			return err
		}
		hits, err = r.readHits()
		return err
	})
	return hits, err
}

// completeAndCheck fills in defaults, and returns an error for a faulty query.
func (q *Query) completeAndCheck() error {
	needsVectors := q.Vectors != nil || q.Hybrid || q.Highlight || q.Feedback != 0 || len(q.Like)+len(q.Unlike) > 0
	switch {
	case q.Text == "" && q.Vectors == nil:
		return fmt.Errorf("%w: it is empty", ErrQuery)
	case q.K < 0:
		return fmt.Errorf("%w: K is %d", ErrOption, q.K)
	case q.Where == "" && len(q.Args) > 0:
		return fmt.Errorf("%w: Args without Where", ErrOption)
	case q.Hybrid && q.Text == "" || q.Highlight && q.Text == "":
		return fmt.Errorf("%w: Hybrid and Highlight need Text", ErrOption)
	case q.Keywords && (q.Text == "" || needsVectors):
		return fmt.Errorf("%w: Keywords goes with Text, and not with Vectors, Hybrid, Highlight, Feedback, "+
			"Like and Unlike", ErrOption)
	case q.Keywords && q.Group != "" && q.Group != search.GroupBest && q.Group != EachPassage:
		return fmt.Errorf("%w: Group %q does not go with Keywords, which rank a document by its best passage",
			ErrOption, q.Group)
	case q.Alpha != 0 && !q.Hybrid:
		return fmt.Errorf("%w: Alpha needs Hybrid", ErrOption)
	case q.Passages != 0 && q.Group == EachPassage:
		return fmt.Errorf("%w: Passages does not go with Group %q, whose hits are passages", ErrOption, EachPassage)
	case q.Highlight && q.Vectors != nil:
		return fmt.Errorf("%w: Highlight does not go with Vectors: it needs a question that is encoded here", ErrOption)
	}
	if q.Group == EachPassage {
		q.Group = ""
	} else {
		q.Group, q.Passages = cmp.Or(q.Group, search.GroupBest), cmp.Or(q.Passages, search.DefaultPassages)
	}
	o := q.options()
	if err := o.Check(); err != nil {
		return err
	}
	if q.K == 0 {
		q.K = defaultK
	}
	if q.Alpha == 0 {
		q.Alpha = fuse.DefaultAlpha
	}
	return nil
}

// options returns the options of the search by vectors. They are also checked for a search by keywords.
func (q *Query) options() search.Options {
	o := search.Options{Group: q.Group, Passages: q.Passages, Matches: q.Highlight && !q.Hybrid}
	o.SetPage(q.rankingPage())
	if q.Feedback != 0 || len(q.Like)+len(q.Unlike) > 0 {
		o.Feedback = &search.Feedback{Docs: q.Feedback, Like: q.Like, Unlike: q.Unlike}
	}
	return o
}

// rankingPage returns the page of the ranking.
func (q *Query) rankingPage() search.Page {
	return search.Page{Offset: q.Offset, K: q.K, MinScore: q.MinScore}
}

// searchRun is one search, in one state of a collection.
type searchRun struct {
	coll     *Collection
	ctx      context.Context
	snapshot *store.Snapshot
	query    *Query
	filter   *search.Filter

	encoder     *encode.Encoder
	queryTokens []encode.Token // tokens of the question, for highlights
	noTokens    error          // why they are missing, nil if they are not
}

// readHits returns the hits with their stored fields.
func (r *searchRun) readHits() ([]Hit, error) {
	ranked, err := r.findRanked()
	if err != nil {
		return nil, err
	}
	hits := make([]Hit, len(ranked))
	for i := range ranked {
		if hits[i], err = r.readHit(&ranked[i].Hit); err != nil {
			return nil, err
		}
		hits[i].Score = ranked[i].Score
	}
	return hits, nil
}

// findRanked returns the hits without their stored data.
func (r *searchRun) findRanked() ([]search.RankedHit, error) {
	q := r.query
	if q.Keywords {
		hits, err := r.searchKeywords(q.rankingPage())
		return search.RankedHits(hits), err
	}
	sq := search.Query{Vectors: q.Vectors}
	if q.Vectors == nil {
		var err error
		if r.encoder, err = r.coll.openEncoder(r.ctx); err != nil {
			return nil, err
		}
		encoded, err := r.encoder.Query(r.ctx, q.Text)
		if err != nil {
			return nil, err
		}
		if len(encoded.Vectors) == 0 {
			return nil, fmt.Errorf("%w: it has no words", ErrQuery)
		}
		if encoded.Dropped > 0 && r.coll.opts.Logger != nil {
			r.coll.opts.Logger.WarnContext(r.ctx, "a question was cut: the model does not read all of it",
				"path", r.coll.path, "dropped_tokens", encoded.Dropped, "length", r.encoder.Config().Query.Length)
		}
		sq.Vectors, sq.Dim = encoded.Vectors, r.encoder.Dim()
		if q.Highlight {
			r.queryTokens, r.noTokens = highlight.KeptTokens(r.encoder, encode.Query, q.Text)
			if r.noTokens != nil && !highlight.IsUnknown(r.noTokens) {
				return nil, r.noTokens
			}
		}
	}
	o := q.options()
	o.Filter = r.filter
	if !q.Hybrid {
		hits, err := r.searchVectors(sq, o)
		return search.RankedHits(hits), err
	}
	// Fuse the rankings by vectors and by words. Each is longer than the page.
	p := q.rankingPage()
	inputPage := p.RankingPage(r.snapshot.MaxHits())
	o.SetPage(inputPage)
	byVectors, err := r.searchVectors(sq, o)
	if err != nil {
		return nil, err
	}
	byWords, err := r.searchKeywords(inputPage)
	if err != nil {
		return nil, err
	}
	fused, err := search.FuseRanked(fuse.RelativeScore, q.Alpha, p, inputPage,
		search.RankedHits(byVectors), search.RankedHits(byWords))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", r.coll.path, ErrOption, err)
	}
	if !q.Highlight {
		return fused, nil
	}
	searchAgain := func(o search.Options) ([]search.Hit, error) { return r.searchVectors(sq, o) }
	return fused, search.MatchRanked(fused, searchAgain)
}

// searchKeywords returns a page of the hits by words: documents, unless the query has no group.
func (r *searchRun) searchKeywords(p search.Page) ([]search.Hit, error) {
	return r.snapshot.SearchKeywords(r.ctx, collection.KeywordQuery{
		Text: r.query.Text, K: p.K, Offset: p.Offset, MinScore: p.MinScore,
		Filters: []*search.Filter{r.filter}, Passages: r.query.Passages,
	})
}

// searchVectors returns the hits by vectors.
func (r *searchRun) searchVectors(q search.Query, o search.Options) ([]search.Hit, error) {
	results, err := r.snapshot.Search(r.ctx, []search.Query{q}, o)
	if err != nil {
		var queryErr *search.QueryError // its index is of no use: there is one query
		if errors.As(err, &queryErr) {
			err = queryErr.Err
		}
		return nil, err
	}
	return results[0].Hits, nil
}

// readHit returns a hit with its stored data.
func (r *searchRun) readHit(h *search.Hit) (Hit, error) {
	if err := r.ctx.Err(); err != nil {
		return Hit{}, err
	}
	if len(h.Passages) == 1 && h.Passages[0].ID == h.ID {
		// The document is stored without passages: its only "passage" is itself, and has the data for highlights.
		passage := h.Passages[0]
		passage.Score, passage.Passages = h.Score, nil
		h = &passage
	}
	stored, err := r.snapshot.MetadataOf(h)
	if err != nil {
		return Hit{}, err
	}
	d := splitStored(h.ID, slices.Clone(stored))
	hit := Hit{ID: h.ID, Score: float64(h.Score), Title: d.Title, Text: d.Text, Payload: d.Payload, Passage: h.Passage}
	if hit.Passage == nil && len(h.Passages) == 0 {
		if hit.Passage, err = vectors.PassageFromPayload(h.ID, stored); err != nil {
			hit.Passage = nil // the payload of another program: it does not describe a passage
		}
	}
	for i := range h.Passages {
		p, err := r.readHit(&h.Passages[i])
		if err != nil {
			return Hit{}, err
		}
		hit.Passages = append(hit.Passages, p)
	}
	if r.query.Highlight && len(h.Passages) == 0 {
		hit.Spans, hit.NoSpans, err = r.highlightSpans(h, stored)
	}
	return hit, err
}

// highlightSpans returns the words of a hit that match the question, or the reason why they are missing.
func (r *searchRun) highlightSpans(h *search.Hit, stored json.RawMessage) (spans []highlight.Span, missing, err error) {
	if r.noTokens != nil {
		return nil, r.noTokens, nil
	}
	pool := max(r.snapshot.Snapshot().Header().Build.Pool, r.encoder.Config().Pool)
	d, err := highlight.FindSourceText(r.encoder, stored, nil, h.Tokens, pool)
	switch {
	case highlight.IsUnknown(err):
		return nil, err, nil
	case err != nil:
		return nil, nil, err
	}
	return d.Spans(r.query.Text, r.queryTokens, h.Matches), nil, nil
}
