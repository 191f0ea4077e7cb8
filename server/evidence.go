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

// feedbackIn are documents that are taken for good, and for bad.
type feedbackIn struct {
	Documents int      `json:"documents,omitempty"`
	Like      []string `json:"like,omitempty" doc:"_id of documents that are good"`
	Unlike    []string `json:"unlike,omitempty"`
}

// passagesPerDocument is how many of each document are wanted, where there is a group.
func (in *searchFields) passagesPerDocument() int { return cmp.Or(in.Passages, search.DefaultPassages) }

// checkEvidence finds what is wrong with what is asked beside the documents by so many queries.
func (in *searchFields) checkEvidence(queries int) error {
	switch {
	case in.Group != "" && !slices.Contains(search.Groupings(), search.Grouping(in.Group)):
		return badRequest("group is %q; there are %v", in.Group, search.Groupings())
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

// reserveEvidence counts what the search holds beside the hits of queries.
func (q *request) reserveEvidence(tasks, asked []task, in *searchFields, k, perHit int) error {
	const match = 48
	tokensOf := func(tasks []task) (tokens int) {
		for i := range tasks {
			tokens += len(tasks[i].query.Vectors) / max(tasks[i].query.Dim, 1)
		}
		return tokens
	}
	tokens := tokensOf(tasks)
	if in.Highlight {
		tokens := tokensOf(asked)
		if err := q.reserveAnswer(saturatingProduct(match, tokens, k, perHit)); err != nil {
			return err
		}
	}
	if f := in.Feedback; f != nil && len(tasks) > 0 {
		const usual, sum = 512, 64                                                               // tokens of a document that are summed up, and what one takes beside its vector
		docs, dim := max(f.Documents, f.Documents+len(f.Like)+len(f.Unlike)), tasks[0].query.Dim // of a sum that overflows, the first
		return q.reserveAnswer(saturatingProduct(docs, usual, 4*dim+sum) + saturatingProduct(4*dim, tokens+2*search.UsualFeedbackTerms*len(tasks)))
	}
	return nil
}

// saturatingProduct is that of numbers, or what no answer may have.
func saturatingProduct(all ...int) int {
	p := 1
	for _, n := range all {
		if n > 0 && p > math.MaxInt/4/n {
			return math.MaxInt / 2
		}
		p *= n
	}
	return p
}

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
			from, p := &h.Passages[j], &out.Passages[i][j]
			*p = passageOut{
				DocumentID: collection.NumberOf(from),
				ID:         from.ID,
				Score:      float64(from.Score),
				Number:     -1,
			}
			if of := from.Passage; of != nil {
				p.Number, p.Start, p.End = of.Number, of.Start, of.End
			}
			if !in.wantsMetadata() {
				continue
			}
			payload, err := r.snapshot.MetadataOf(from)
			if err != nil {
				return err
			}
			if p.Metadata, err = q.documentMetadata(&collection.StoredDocument{Number: p.DocumentID, ID: p.ID, Metadata: payload}); err != nil {
				return err
			}
		}
	}
	return nil
}

// highlighter tells which words of hits questions have found.
type highlighter struct {
	request *request
	encoder Encoder
	pool    int
}

// newHighlighter is that of rankings in what is described. What was not found by vectors alone is
// asked what matched.
func (q *request) newHighlighter(v collection.Snapshot, d *search.Description, asked []task, in *searchFields, ranked []ranking) (*highlighter, error) {
	e, none := q.server.encoder()
	if none != nil {
		return nil, none
	}
	if len(in.TextQuery) > 0 {
		for i := range ranked {
			err := search.MatchRanked(ranked[i].hits, func(o search.Options) ([]search.Hit, error) {
				found, err := v.Search(q.ctx, []search.Query{asked[i].query}, o)
				if err != nil {
					return nil, q.dimensionError(v, asked[i:], err)
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

// addSpans adds the words that were found of the hits of a query, or of their passages.
func (x *highlighter) addSpans(r *ranking, t *task, out *resultOut) error {
	done, err := x.request.reserveTokenMemory(x.request.memory, len(t.text))
	if err != nil {
		return err
	}
	asked, err := highlight.Kept(x.encoder, encode.Query, t.text)
	done()
	if highlight.Unknown(err) {
		out.Notes = append(out.Notes, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	words := func(h *search.Hit) ([]highlight.Span, error) {
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
		d, err := highlight.Find(x.encoder, json.RawMessage(payload), nil, h.Tokens, x.pool)
		done()
		if highlight.Unknown(err) {
			note := err.Error()
			if !errors.Is(err, highlight.ErrPooled) { // which is true of all
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
		spans := d.Spans(t.text, asked, h.Matches)
		const each = 160 // bytes of one, as text and as value
		return spans, x.request.reserveAnswer(each * len(spans))
	}
	if out.Passages == nil {
		out.Spans = make([][]highlight.Span, len(r.hits))
	}
	for i := range r.hits {
		h := &r.hits[i].Hit
		for j := range h.Passages {
			if out.Passages[i][j].Spans, err = words(&h.Passages[j]); err != nil {
				return err
			}
		}
		if out.Spans == nil {
			continue
		}
		if out.Spans[i], err = words(h); err != nil {
			return err
		}
	}
	return nil
}
