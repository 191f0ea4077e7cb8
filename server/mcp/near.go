package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

type similarIn struct {
	Index     string `json:"index,omitempty" jsonschema:"name of the index; may be left out where there is only one"`
	ID        string `json:"id" jsonschema:"id of the document that others are compared with"`
	Condition string `json:"condition,omitempty" jsonschema:"only documents for which this holds: SQL over the fields"`
	K         int    `json:"k,omitempty" jsonschema:"how many documents, 1 to 20; default 5"`
}

type similarOut struct {
	Hits []hitOut `json:"hits" jsonschema:"the most similar documents, without the one asked for"`
}

func (t tools) similar(ctx context.Context, from http.Header, in *similarIn) (similarOut, error) {
	out := similarOut{Hits: []hitOut{}}
	k, err := hits(in.K)
	if err != nil {
		return out, err
	}
	path, err := t.index(ctx, from, in.Index)
	if err != nil {
		return out, err
	}
	var found struct {
		Documents []struct {
			Embeddings json.RawMessage `json:"embeddings"`
		} `json:"documents"`
	}
	if err := t.service.ask(ctx, from, "GET", path+"/documents?"+url.Values{"id": {in.ID}, "vectors": {"json"}}.Encode(), nil, &found); err != nil {
		return out, err
	}
	if len(found.Documents) != 1 {
		return out, &RefusedError{http.StatusNotFound, "DOCUMENT_NOT_FOUND", fmt.Sprintf("there is no document with _id %q", in.ID)}
	}
	condition, parameters := "_id != ?", []string{in.ID}
	if in.Condition != "" {
		condition = "(" + in.Condition + ") AND " + condition
	}
	out.Hits, err = t.find(ctx, from, path+"/search/filtered", map[string]any{
		"queries":          []any{map[string]any{"embeddings": found.Documents[0].Embeddings}},
		"params":           map[string]any{"top_k": k},
		"filter_condition": condition, "filter_parameters": parameters,
	}, "")
	return out, err
}

type explainIn struct {
	Index string `json:"index,omitempty" jsonschema:"name of the index; may be left out where there is only one"`
	Query string `json:"query" jsonschema:"the question, in words"`
	ID    string `json:"id" jsonschema:"id of the document"`
}

type explainOut struct {
	Score   float64    `json:"score"`
	Stage   string     `json:"stage" jsonschema:"returned, or where the document left the search"`
	Rank    int        `json:"rank,omitempty"`
	Matches []matchOut `json:"matches" jsonschema:"for each word of the question what it matches best"`
	Notes   []string   `json:"notes,omitempty"`
}

type matchOut struct {
	Word     string  `json:"word"`
	Document string  `json:"document,omitempty" jsonschema:"the piece of the document's text"`
	Start    int     `json:"start,omitempty" jsonschema:"byte of the text that was encoded where the piece begins"`
	Score    float64 `json:"score"`
}

// explain leaves out what a model puts beside the words of a question.
func (t tools) explain(ctx context.Context, from http.Header, in *explainIn) (explainOut, error) {
	out := explainOut{Matches: []matchOut{}}
	if in.Query == "" || len(in.Query) > MaxQuery {
		return out, fmt.Errorf("%w: query has %d bytes; 1 to %d are possible", ErrArgument, len(in.Query), MaxQuery)
	}
	path, err := t.index(ctx, from, in.Index)
	if err != nil {
		return out, err
	}
	type token struct {
		Piece string `json:"piece"`
		Start int    `json:"start"`
		End   int    `json:"end"`
	}
	var found struct {
		Score   float64  `json:"score"`
		Stage   string   `json:"stage"`
		Rank    int      `json:"rank"`
		Notes   []string `json:"notes"`
		Matches []struct {
			Query    int     `json:"query_token"`
			Document int     `json:"doc_token"`
			Score    float64 `json:"score"`
		} `json:"matches"`
		QueryTokens    []token `json:"query_tokens"`
		DocumentTokens []token `json:"document_tokens"`
	}
	if err := t.service.ask(ctx, from, "POST", path+"/explain", map[string]any{"text": in.Query, "id": in.ID}, &found); err != nil {
		return out, err
	}
	out.Score, out.Stage, out.Rank, out.Notes = found.Score, found.Stage, found.Rank, found.Notes
	for _, m := range found.Matches {
		if m.Query < 0 || m.Query >= len(found.QueryTokens) {
			continue
		}
		word := found.QueryTokens[m.Query]
		if word.Start >= word.End || len(out.Matches) == mostMatches {
			continue
		}
		x := matchOut{Word: word.Piece, Score: m.Score}
		if m.Document >= 0 && m.Document < len(found.DocumentTokens) {
			x.Document, x.Start = found.DocumentTokens[m.Document].Piece, found.DocumentTokens[m.Document].Start
		}
		out.Matches = append(out.Matches, x)
	}
	return out, nil
}

// mostMatches is how many words of a question are told of.
const mostMatches = 128
