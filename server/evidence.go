package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
)

// feedbackIn has documents that count as relevant, and as not relevant.
type feedbackIn struct {
	Documents int      `json:"documents,omitempty"`
	Like      []string `json:"like,omitempty" doc:"_id of documents that are good"`
	Unlike    []string `json:"unlike,omitempty"`
}

// passagesPerDocument returns how many passages of each document are wanted, if hits are grouped.
func (in *searchFields) passagesPerDocument() int { return cmp.Or(in.Passages, search.DefaultPassages) }

// checkEvidence checks the fields about groups, feedback and highlights of a search with a number of queries.
func (in *searchFields) checkEvidence(queries int) error {
	switch {
	case in.Group != "" && !slices.Contains(search.Groupings(), search.Grouping(in.Group)):
		return badRequest("group is %q; want one of %v", in.Group, search.Groupings())
	case in.Passages < 0 || in.Passages > 0 && in.Group == "":
		return badRequest("passages is %d; a number goes with group", in.Passages)
	case queries == 0 && in.Feedback != nil:
		return badRequest("feedback adds to queries, and there is text_query alone")
	case queries == 0 && in.Highlight && in.TextMode == textExpression:
		return badRequest("highlight does not go with text_query alone in text_mode expression")
	}
	if f := in.Feedback; f != nil {
		o := f.toFeedback()
		if err := o.Check(); err != nil {
			return badRequest("feedback: %v", err)
		}
	}
	return nil
}

// reserveEvidence reserves the memory that feedback takes for tasks, and highlights for the highlighted tasks,
// in addition to hits: k for each query, each of perHit documents and passages.
func (q *request) reserveEvidence(tasks, highlighted []task, in *searchFields, k, perHit int) error {
	const matchBytes = 48 // of a token of the query and its best match in a document
	countTokens := func(tasks []task) (tokens int) {
		for i := range tasks {
			tokens += len(tasks[i].query.Vectors) / max(tasks[i].query.Dim, 1)
		}
		return tokens
	}
	tokens := countTokens(tasks)
	if in.Highlight {
		if err := q.reserveAnswer(saturatingProduct(matchBytes, countTokens(highlighted), k, perHit)); err != nil {
			return err
		}
	}
	if f := in.Feedback; f != nil && len(tasks) > 0 {
		// Feedback sums up the tokens of its documents, and adds some to each query.
		const tokensPerDocument = 512 // about
		const sumBytes = 64           // of a token's sum, without its vector
		dim := tasks[0].query.Dim
		docs := max(f.Documents, f.Documents+len(f.Like)+len(f.Unlike)) // f.Documents, if the sum overflows
		sums := saturatingProduct(docs, tokensPerDocument, 4*dim+sumBytes)
		queries := saturatingProduct(4*dim, tokens+2*search.DefaultFeedbackTerms*len(tasks))
		return q.reserveAnswer(sums + queries)
	}
	return nil
}

// saturatingProduct returns the product of numbers or, if that is too large, half of the largest int: more
// than any answer may have, and two of them can be added.
func saturatingProduct(factors ...int) int {
	p := 1
	for _, n := range factors {
		if n > 0 && p > math.MaxInt/4/n {
			return math.MaxInt / 2
		}
		p *= n
	}
	return p
}

// toFeedback returns the feedback as an option of a search.
func (f *feedbackIn) toFeedback() *search.Feedback {
	return &search.Feedback{Docs: f.Documents, Like: f.Like, Unlike: f.Unlike}
}

// addPassages adds the passages of the documents of a result.
func (r *ranking) addPassages(q *request, in *searchFields, out *resultOut) error {
	out.Passages = make([][]passageOut, len(r.hits))
	for i := range r.hits {
		h := &r.hits[i].Hit
		out.Passages[i] = make([]passageOut, len(h.Passages))
		for j := range h.Passages {
			passage, p := &h.Passages[j], &out.Passages[i][j]
			*p = passageOut{
				DocumentID: collection.HitNumber(passage),
				ID:         passage.ID,
				Score:      float64(passage.Score),
				Number:     -1,
			}
			if position := passage.Passage; position != nil {
				p.Number, p.Start, p.End = position.Number, position.Start, position.End
			}
			if !in.wantsMetadata() {
				continue
			}
			payload, err := r.snapshot.MetadataOf(passage)
			if err != nil {
				return err
			}
			document := &collection.StoredDocument{Number: p.DocumentID, ID: p.ID, Metadata: payload}
			if p.Metadata, err = q.documentMetadata(document); err != nil {
				return err
			}
		}
	}
	return nil
}

// highlighter finds the words of hits that matched words of a query.
type highlighter struct {
	request *request
	encoder Encoder
	pool    int // the pooling factor of the index
}

// newHighlighter returns a highlighter for rankings of the index that d describes. Hits of text_query have no
// matches of tokens yet: it searches for them.
func (q *request) newHighlighter(
	v collection.Snapshot, d *search.Description, queries []task, in *searchFields, ranked []ranking,
) (*highlighter, error) {
	e, missing := q.server.encoder()
	if missing != nil {
		return nil, missing
	}
	if len(in.TextQuery) > 0 {
		for i := range ranked {
			err := search.MatchRanked(ranked[i].hits, func(o search.Options) ([]search.Hit, error) {
				found, err := v.Search(q.ctx, []search.Query{queries[i].query}, o)
				if err != nil {
					return nil, q.dimensionError(v, queries[i:], err)
				}
				return found[0].Hits, nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return &highlighter{q, e, d.Pool}, nil
}

// addSpans adds the matching words of the hits of a query, and of their passages, to the result.
func (x *highlighter) addSpans(r *ranking, t *task, out *resultOut) error {
	// Tokens of the query.
	done, err := x.request.reserveTokenMemory(x.request.memory, len(t.text))
	if err != nil {
		return err
	}
	queryTokens, err := highlight.KeptTokens(x.encoder, encode.Query, t.text)
	done()
	if highlight.IsUnknown(err) {
		out.Notes = append(out.Notes, err.Error())
		return nil
	}
	if err != nil {
		return err
	}

	// findSpans returns the matching words of a hit. A text that cannot be shown gets a note.
	findSpans := func(h *search.Hit) ([]highlight.Span, error) {
		if err := x.request.ctx.Err(); err != nil {
			return nil, err
		}
		payload, err := r.snapshot.MetadataOf(h)
		if err != nil {
			return nil, err
		}
		done, err := x.request.reserveTokenMemory(x.request.memory, len(payload))
		if err != nil {
			return nil, err
		}
		d, err := highlight.FindSourceText(x.encoder, json.RawMessage(payload), nil, h.Tokens, x.pool)
		done()
		if highlight.IsUnknown(err) {
			note := err.Error()
			if !errors.Is(err, highlight.ErrPooled) { // pooling is the same for all documents
				note = fmt.Sprintf("document %q: %v", h.ID, err)
			}
			if !slices.Contains(out.Notes, note) {
				out.Notes = append(out.Notes, note)
			}
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		spans := d.Spans(t.text, queryTokens, h.Matches)
		const spanBytes = 160 // as JSON and as a value
		return spans, x.request.reserveAnswer(spanBytes * len(spans))
	}

	// Without a group the spans are those of the hits, otherwise those of their passages.
	if out.Passages == nil {
		out.Spans = make([][]highlight.Span, len(r.hits))
	}
	for i := range r.hits {
		h := &r.hits[i].Hit
		for j := range h.Passages {
			if out.Passages[i][j].Spans, err = findSpans(&h.Passages[j]); err != nil {
				return err
			}
		}
		if out.Spans == nil {
			continue
		}
		if out.Spans[i], err = findSpans(h); err != nil {
			return err
		}
	}
	return nil
}
