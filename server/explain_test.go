package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// The text that a document was made of is found among its usual fields.
func TestExplainFindsTheText(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "texts"}, nil)
	var docs, metadata list
	for _, m := range []object{
		{"_id": "both", "title": "about cats", "text": "they sleep"},
		{"_id": "text", "title": "cats", "text": "they sleep well"},
		{"_id": "page", "title": "cats", "page_content": "they sleep for hours"},
		{"_id": "other", "title": "cats", "text": "one two", "page_content": "one two three four five"},
	} {
		metadata = append(metadata, m)
	}
	for _, text := range []string{"about cats they sleep", "they sleep well", "they sleep for hours", "a b c d e f g"} {
		docs = append(docs, object{"embeddings": matrix(text)})
	}
	s.ok(t, 202, "POST", "/indices/texts/update", object{"documents": docs, "metadata": metadata}, nil)
	for id, want := range map[string]string{"both": "about cats they sleep", "text": "they sleep well", "page": "they sleep for hours", "other": ""} {
		var x struct {
			Text   string   `json:"document_text"`
			Tokens []object `json:"document_tokens"`
			Notes  []string
		}
		s.ok(t, 200, "POST", "/indices/texts/explain", object{"text": "sleep", "id": id}, &x)
		require.Equal(t, want, x.Text, id)
		if want == "" {
			require.Len(t, x.Notes, 1)
			require.Contains(t, x.Notes[0], "the text has 3 tokens and the document 7")
			continue
		}
		require.Len(t, x.Tokens, len(strings.Fields(want)), id)
		require.Empty(t, x.Notes)
	}
}

func TestExplain(t *testing.T) {
	s := start(t, words{}, nil)
	s.addPets(t)
	var x struct {
		ID, Stage     string
		DocumentID    uint32 `json:"document_id"`
		Rank, Tokens  int
		Score         float64
		Matches       []struct{ QueryToken, DocToken int }
		QueryTokens   []struct{ Piece string } `json:"query_tokens"`
		DocumentText  string                   `json:"document_text"`
		DocumentParts []struct {
			Piece      string
			Start, End int
		} `json:"document_tokens"`
		Similarities [][]float64
		Metadata     object
		Notes        []string
	}
	s.ok(t, 200, "POST", "/indices/pets/explain", object{"text": "dogs at home", "id": "b", "text_fields": list{"text"}, "similarities": true}, &x)
	require.Equal(t, "b", x.ID)
	require.EqualValues(t, 1, x.DocumentID)
	require.Equal(t, "returned", x.Stage)
	require.Equal(t, 1, x.Rank)
	require.Len(t, x.Matches, 3)
	require.Equal(t, "dogs", x.QueryTokens[0].Piece)
	require.Len(t, x.DocumentParts, 4)
	require.Equal(t, "dogs bark at night", x.DocumentText)
	require.Equal(t, "night", x.DocumentText[x.DocumentParts[3].Start:x.DocumentParts[3].End])
	require.Len(t, x.Similarities, 3)
	require.InDelta(t, 1, x.Similarities[0][0], .02)
	require.Equal(t, "dogs", x.Metadata["title"])
	require.Empty(t, x.Notes)

	s.ok(t, 200, "POST", "/indices/pets/explain", object{"query": query("cats"), "document_id": 1, "subset": list{0}}, &x)
	require.Equal(t, "filtered", x.Stage)
	s.ok(t, 200, "POST", "/indices/pets/explain", object{"query": query("cats"), "document_id": 1, "params": object{"top_k": 1}}, &x)
	require.Equal(t, "outranked", x.Stage)
	require.Equal(t, "dogs bark at night", x.DocumentText) // without its title, which was not encoded
}

// The products of all tokens of a query with all of a document are an answer like others:
// it is counted before it is made.
func TestSimilaritiesAreCounted(t *testing.T) {
	s := start(t, words{}, &server.Options{Limits: server.Limits{Answer: 1 << 20}})
	s.ok(t, 200, "POST", "/indices", object{"name": "long"}, nil)
	s.ok(t, 202, "POST", "/indices/long/update", object{"documents": list{query(strings.Repeat("cats dogs birds ", 500))}}, nil)
	explained := func(tokens int) object {
		return object{"document_id": 0, "similarities": true, "query": query(strings.Repeat("cats ", tokens))}
	}
	s.ok(t, 200, "POST", "/indices/long/explain", explained(10), nil)
	p := s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/long/explain", explained(200))
	require.Contains(t, p.Message, "max-memory")
}
