package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
)

type similarIn struct {
	Index     string      `json:"index,omitempty" jsonschema:"name of the index; optional if there is only one"`
	ID        string      `json:"id" jsonschema:"id of the document that others are compared with"`
	Condition string      `json:"condition,omitempty" jsonschema:"condition on the documents, as in search"`
	K         wholeNumber `json:"k,omitempty" jsonschema:"how many documents, 1 to 20; default 5"`
	tokensIn
}

// findSimilar is the tool similar: it searches with the vectors of a document as the query.
func (t tools) findSimilar(ctx context.Context, header http.Header, in *similarIn) (foundOut, error) {
	// The vectors of the document.
	out := foundOut{Hits: []hitOut{}}
	k, err := hitCount(int(in.K))
	if err != nil {
		return out, err
	}
	budget, err := in.byteBudget(hitBytes * k)
	if err != nil {
		return out, err
	}
	path, err := t.indexPath(ctx, header, in.Index)
	if err != nil {
		return out, err
	}
	document, vectors, shape, err := t.fetchVectors(ctx, header, path, in.ID)
	if err != nil {
		return out, err
	}

	// Search.
	body := map[string]any{
		"queries": []any{map[string]any{"embeddings_b64": vectors, "shape": shape}},
		"group":   "best", "passages": 1,
		"params": map[string]any{"top_k": k + 1}, // the document itself is one of them
	}
	path += "/search"
	if in.Condition != "" {
		path += "/filtered"
		body["filter_condition"] = in.Condition
	}
	hits, _, err := t.fetchHits(ctx, header, path, body)
	if err != nil {
		return out, err
	}

	// Leave the document itself out.
	others := make([]searchHit, 0, k)
	for _, hit := range hits {
		if hit.id != document && len(others) < k {
			others = append(others, hit)
		}
	}
	return fitHits(others, "", budget)
}

// maxQueryPassages is the largest number of passages, and maxQueryVectors that of vectors, that a query has
// if it is a document.
const (
	maxQueryPassages = 8
	maxQueryVectors  = 2048
)

// fetchVectors returns the vectors of a document, or of some of its passages, as base64, and their shape. path
// is that of the index. If id is that of a passage, the vectors are those of the passage; document is the id of
// its document.
func (t tools) fetchVectors(
	ctx context.Context, header http.Header, path, id string,
) (document, vectors string, shape []int, err error) {
	ids, err := t.sampleIDs(ctx, header, path, id)
	if err != nil {
		return "", "", nil, err
	}
	var answer storedAnswer
	query := documentRange{limit: maxQueryPassages, vectors: true}.encodeQuery(ids...)
	if err := t.service.send(ctx, header, "GET", path+"/documents?"+query, nil, &answer); err != nil {
		return "", "", nil, err
	}
	var data []byte
	rows, dim := 0, 0
	document = id
	for i, d := range answer.Documents {
		if len(d.Shape) != 2 || d.Shape[0] < 0 || d.Shape[1] < 1 || len(d.Base64) != 4*d.Shape[0]*d.Shape[1] ||
			dim > 0 && d.Shape[1] != dim {
			return "", "", nil, fmt.Errorf("the service sends vectors of document %q that have no shape", d.ID)
		}
		dim = d.Shape[1]
		n := d.Shape[0]
		if i > 0 {
			n = min(n, max(maxQueryVectors-rows, 0))
		} else if d.Passage != nil {
			document = d.Passage.Of
		}
		rows += n
		data = append(data, d.Base64[:4*n*dim]...)
	}
	return document, base64.StdEncoding.EncodeToString(data), []int{rows, dim}, nil
}

// maxIDs is the largest number of ids of passages that one request reads.
const maxIDs = 10_000

// sampleIDs returns the id of a document without passages, or the ids of up to maxQueryPassages of its
// passages at equal distances. path is that of the index.
func (t tools) sampleIDs(ctx context.Context, header http.Header, path, id string) (ids []string, err error) {
	found, err := t.fetchDocument(ctx, header, path, id, documentRange{limit: maxIDs})
	if err != nil {
		return nil, err
	}
	n := found.Total
	for i := range min(n, maxQueryPassages) {
		number := i
		if n > maxQueryPassages {
			number = i * n / maxQueryPassages
		}
		if number < len(found.Documents) {
			ids = append(ids, found.Documents[number].ID)
			continue
		}
		single, err := t.fetchDocument(ctx, header, path, id, documentRange{offset: number, limit: 1})
		if err != nil {
			return nil, err
		}
		for _, d := range single.Documents {
			ids = append(ids, d.ID)
		}
	}
	return ids, nil
}

type explainIn struct {
	Index string `json:"index,omitempty" jsonschema:"name of the index; optional if there is only one"`
	Query string `json:"query" jsonschema:"the question, in words"`
	ID    string `json:"id" jsonschema:"id of the document"`
}

type explainOut struct {
	Passage string     `json:"passage,omitempty" jsonschema:"id of the best passage, if the document has passages"`
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

// explainScore is the tool explain. It leaves out tokens that a model adds to the words of a question.
func (t tools) explainScore(ctx context.Context, header http.Header, in *explainIn) (explainOut, error) {
	out := explainOut{Matches: []matchOut{}}
	if in.Query == "" || len(in.Query) > MaxQuery {
		return out, fmt.Errorf("bad argument: query has %d bytes; 1 to %d are possible", len(in.Query), MaxQuery)
	}
	path, err := t.indexPath(ctx, header, in.Index)
	if err != nil {
		return out, err
	}

	// Ask the service.
	type token struct {
		Piece string `json:"piece"`
		Start int    `json:"start"`
		End   int    `json:"end"`
	}
	var found struct {
		ID      string   `json:"id"`
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
	if err := t.service.send(ctx, header, "POST", path+"/explain", map[string]any{"text": in.Query, "id": in.ID},
		&found); err != nil {
		return out, err
	}

	// Show the words of the question, with their best matches.
	if found.ID != in.ID {
		out.Passage = found.ID
	}
	out.Score, out.Stage, out.Rank, out.Notes = found.Score, found.Stage, found.Rank, found.Notes
	for _, m := range found.Matches {
		if m.Query < 0 || m.Query >= len(found.QueryTokens) {
			continue
		}
		word := found.QueryTokens[m.Query]
		if word.Start >= word.End || len(out.Matches) == maxMatches {
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

// maxMatches is the largest number of words of a question that an explanation has.
const maxMatches = 128
