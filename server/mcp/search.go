package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

type searchIn struct {
	Index     string      `json:"index,omitempty" jsonschema:"name of the index; optional if there is only one"`
	Query     string      `json:"query" jsonschema:"the question, in words"`
	Condition string      `json:"condition,omitempty" jsonschema:"condition on the fields, such as year >= 2020"`
	K         wholeNumber `json:"k,omitempty" jsonschema:"how many documents, 1 to 20; default 5"`
	Offset    wholeNumber `json:"offset,omitempty" jsonschema:"skip this many of the best hits, for the next page"`
	MinScore  *float64    `json:"min_score,omitempty" jsonschema:"leave hits out that score less"`
	Mode      string      `json:"mode,omitempty" jsonschema:"vectors (by meaning), keywords (by words) or hybrid"`
	Group     bool        `json:"group,omitempty" jsonschema:"true: whole documents, each with its best passage"`
	Like      []string    `json:"like,omitempty" jsonschema:"ids of good documents, to find more like them"`
	Unlike    []string    `json:"unlike,omitempty" jsonschema:"ids of documents that are not wanted"`
	tokensIn
}

// The modes of a search.
const (
	byVectors  = "vectors"
	byKeywords = "keywords"
	byBoth     = "hybrid"
)

type searchOut struct {
	foundOut
	Mode string `json:"mode" jsonschema:"how it was searched"`
}

// foundOut are the hits of a search.
type foundOut struct {
	Hits []hitOut `json:"hits"`
	Left int      `json:"left,omitempty" jsonschema:"how many hits max_tokens left no room for"`
	Note string   `json:"note,omitempty" jsonschema:"that the question was too long, and was cut"`
}

type hitOut struct {
	ID    string  `json:"id"`
	Score float64 `json:"score"`
	// Passage is the id of the passage that has the text.
	Passage string `json:"passage,omitempty" jsonschema:"id of the passage that the text is of"`
	Title   string `json:"title,omitempty"`
	// Text is the part that matches the question best. It begins at byte Start of Field.
	Text   string         `json:"text,omitempty" jsonschema:"the part of the text that fits the question best"`
	Field  string         `json:"field,omitempty" jsonschema:"the field that the text is from"`
	Start  int            `json:"start,omitempty" jsonschema:"byte of the field where the part begins"`
	Length int            `json:"length,omitempty" jsonschema:"bytes of the whole field"`
	Fields map[string]any `json:"fields,omitempty" jsonschema:"short fields of the document"`
}

// searchIndex is the tool search.
func (t tools) searchIndex(ctx context.Context, header http.Header, in *searchIn) (searchOut, error) {
	// Check the arguments, and choose a mode.
	out := searchOut{Mode: in.Mode, foundOut: foundOut{Hits: []hitOut{}}}
	k, err := hitCount(int(in.K))
	if err != nil {
		return out, err
	}
	budget, err := in.byteBudget(hitBytes * k)
	if err != nil {
		return out, err
	}
	if in.Query == "" || len(in.Query) > MaxQuery {
		return out, fmt.Errorf("bad argument: query has %d bytes; 1 to %d are possible", len(in.Query), MaxQuery)
	}
	path, err := t.indexPath(ctx, header, in.Index)
	if err != nil {
		return out, err
	}
	switch in.Mode {
	case "":
		out.Mode = byKeywords
		if _, hasModel, err := t.fetchHealth(ctx, header); err != nil {
			return out, err
		} else if hasModel {
			out.Mode = byVectors
		}
	case byVectors, byKeywords, byBoth:
	default:
		return out, fmt.Errorf("bad argument: mode is %q; %s, %s and %s are possible", in.Mode, byVectors, byKeywords,
			byBoth)
	}
	if in.Offset < 0 {
		return out, fmt.Errorf("bad argument: offset is %d", in.Offset)
	}

	// Make the request.
	params := map[string]any{"top_k": k, "offset": in.Offset}
	if in.MinScore != nil {
		params["min_score"] = *in.MinScore
	}
	body := map[string]any{"params": params}
	route := "/search"
	if in.Condition != "" {
		route += "/filtered"
		body["filter_condition"] = in.Condition
	}
	if out.Mode != byVectors {
		body["text_query"] = []string{in.Query}
	}
	if out.Mode != byKeywords {
		body["queries"] = []string{in.Query}
		route += "_with_encoding"
	}
	if out.Mode == byVectors {
		body["highlight"] = true
	}
	if in.Group {
		body["group"], body["passages"] = "best", 1
	}
	if len(in.Like)+len(in.Unlike) > 0 {
		body["feedback"] = map[string]any{"like": in.Like, "unlike": in.Unlike}
	}

	// Search.
	found, dropped, err := t.fetchHits(ctx, header, path+route, body)
	if err == nil {
		out.foundOut, err = fitHits(found, in.Query, budget)
	}
	if dropped > 0 {
		out.Note = fmt.Sprintf("the question was cut at the query length: its last %d tokens took no part in the "+
			"search; ask a shorter one, or raise --query-length of plaid serve or mcp", dropped)
	}
	return out, err
}

// searchHit is a hit in an answer of the service.
type searchHit struct {
	id       string // of the document
	passage  string // the id of its best passage. "" means that the document has no passages
	score    float64
	metadata json.RawMessage // of the passage, if there is one
	spans    []span
}

// span is a part of a field that matches a word of the question.
type span struct {
	Field string  `json:"field"`
	Start int     `json:"start"`
	End   int     `json:"end"`
	Score float64 `json:"score"`
}

// fetchHits returns the hits of a search with one query. dropped is the number of tokens of the query that
// the model did not read.
func (t tools) fetchHits(
	ctx context.Context, header http.Header, path string, body map[string]any,
) (hits []searchHit, dropped int, err error) {
	var answer struct {
		Results []struct {
			IDs      []string          `json:"ids"`
			Scores   []float64         `json:"scores"`
			Metadata []json.RawMessage `json:"metadata"`
			Spans    [][]span          `json:"spans"`
			Passages [][]struct {
				ID       string          `json:"id"`
				Number   int             `json:"n"`
				Metadata json.RawMessage `json:"metadata"`
				Spans    []span          `json:"spans"`
			} `json:"passages"`
		} `json:"results"`
		Dropped int `json:"dropped_tokens"`
	}
	if err := t.service.send(ctx, header, "POST", path, body, &answer); err != nil {
		return nil, 0, err
	}
	for _, r := range answer.Results {
		for i, m := range r.Metadata[:min(len(r.Metadata), len(r.Scores), len(r.IDs))] {
			hit := searchHit{id: r.IDs[i], score: r.Scores[i], metadata: m}
			if i < len(r.Spans) {
				hit.spans = r.Spans[i]
			}
			if i < len(r.Passages) && len(r.Passages[i]) > 0 {
				best := &r.Passages[i][0]
				hit.spans = best.Spans
				if best.Number >= 0 { // its metadata has the document's fields, too
					hit.passage, hit.metadata = best.ID, best.Metadata
				}
			}
			hits = append(hits, hit)
		}
	}
	return hits, answer.Dropped, nil
}

// hitBytes is about the largest size of a hit in an answer: its text, and 1400 bytes of other fields.
const hitBytes = SnippetBytes + 1400

// fitHits returns hits as agents see them, in about as many bytes as the budget has. words are those of the
// question.
func fitHits(hits []searchHit, words string, budget int) (foundOut, error) {
	out := foundOut{Hits: []hitOut{}}
	maxText := SnippetBytes
	if perHit := budget / max(len(hits), 1); perHit < hitBytes { // half of it for the text
		maxText = min(max(perHit/2, shortField), SnippetBytes)
	}
	for i := range hits {
		hit, err := newHitOut(&hits[i], words, maxText)
		if err != nil {
			return out, err
		}
		text, err := jsontext.MarshalUnescaped(hit)
		if err != nil {
			return out, err
		}
		if budget -= len(text); budget < 0 && i > 0 { // the first hit is always shown
			out.Left = len(hits) - i
			break
		}
		out.Hits = append(out.Hits, hit)
	}
	return out, nil
}
