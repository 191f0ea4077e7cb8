package server_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
