package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// A document may come with metadata alone, and its vectors later; that of the first documents of an
// index, too.
func TestVectorsComeLater(t *testing.T) {
	s := start(t, words{}, nil)
	whole := "Prefer: return=representation"
	s.ok(t, 200, "POST", "/indices", object{"name": "late"}, nil)
	var out struct {
		Documents, Empty, Replaced int
		IDs                        []string
		Message                    string
	}
	r := s.send(t, "POST", "/indices/late/update", object{
		"documents": list{object{"embeddings": list{}}, object{"embeddings_b64": "", "shape": list{0, wordDim}}},
		"metadata":  list{object{"_id": "a", "text": "quiet birds", "n": 1}, object{"_id": 7, "n": 2}},
	}, whole)
	r.json(t, &out)
	require.Equal(t, []int{2, 2}, []int{out.Documents, out.Empty}, r.body)
	require.Equal(t, []string{"a", "7"}, out.IDs, "an integer is its digits")
	require.Contains(t, out.Message, "2 without vectors")

	require.Equal(t, []uint32{0}, s.searchIn(t, "late", object{"text_query": list{"birds"}}))
	require.Empty(t, s.searchIn(t, "late", object{"queries": list{query("birds")}}))
	require.Equal(t, []uint32{0}, s.searchIn(t, "late", object{"queries": list{query("birds")}, "text_query": list{"birds"}}))
	var stored struct {
		Documents []struct {
			Metadata   json.RawMessage
			Embeddings [][]float32
		}
	}
	s.ok(t, 200, "GET", "/indices/late/documents?id=a&vectors=json", nil, &stored)
	require.Equal(t, [][]float32{}, stored.Documents[0].Embeddings)

	r = s.send(t, "POST", "/indices/late/update", object{
		"documents": list{query("birds")}, "metadata": list{object{"_id": "a"}}, "keep_metadata": true,
	}, whole)
	r.json(t, &out)
	require.Equal(t, []int{1, 0, 1}, []int{out.Documents, out.Empty, out.Replaced}, r.body)
	require.Equal(t, []uint32{2}, s.searchIn(t, "late", object{"queries": list{query("birds")}, "filter_condition": "n = 1"}))
	require.Equal(t, []uint32{2}, s.searchIn(t, "late", object{"text_query": list{"birds"}}), "the words stay")
}

// searchIn returns the documents of the only query.
func (s *service) searchIn(t *testing.T, index string, ask object) []uint32 {
	t.Helper()
	path := "/indices/" + index + "/search"
	var out struct {
		Results []struct {
			IDs []uint32 `json:"document_ids"`
		}
	}
	s.ok(t, 200, "POST", path, ask, &out)
	require.Len(t, out.Results, 1)
	return out.Results[0].IDs
}

// An empty text is a document without tokens, and counted; also beside passages.
func TestEmptyTexts(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "texts"}, nil)
	for _, window := range []int{0, 2} {
		body := object{"documents": list{"", "cats sleep for long", " \t"}, "metadata": list{object{"_id": "a"}, object{"_id": "b"}, object{"_id": "c"}}, "window": window}
		var out struct{ Documents, Empty int }
		s.send(t, "POST", "/indices/texts/update_with_encoding", body, "Prefer: return=representation").json(t, &out)
		require.Equal(t, []int{3, 2}, []int{out.Documents, out.Empty})
	}
	var encoded struct {
		Embeddings [][][]float32
		Shapes     [][2]int
	}
	s.ok(t, 200, "POST", "/encode", object{"texts": list{"", "cats"}, "input_type": "document"}, &encoded)
	require.Len(t, encoded.Embeddings[0], 0)
	require.Len(t, encoded.Embeddings[1], 1)
	s.refused(t, 400, server.CodeBadRequest, "POST", "/encode", object{"texts": list{""}, "input_type": "query"})
}

// failing makes no vectors of documents.
type failing struct{ words }

func (failing) DocumentsReport(context.Context, iter.Seq2[encode.Text, error], *encode.Report) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) { yield(vectors.Document{}, errors.New("encoded")) }
}

// What refuses a document is said before a text is encoded.
func TestDocumentsAreCheckedBeforeTheyAreEncoded(t *testing.T) {
	s := start(t, failing{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "texts"}, nil)
	long := strings.Repeat("x", 4090)
	for name, c := range map[string]struct {
		more object
		says string
	}{
		"tab":          {object{"metadata": list{object{}, object{"_id": "a\tb"}}}, "document 1: _id is \"a\\tb\": bad id: control character U+0009"},
		"twice":        {object{"metadata": list{object{"_id": "a"}, object{"_id": "a"}}}, "document 1 (id \"a\"): id is taken"},
		"reserved":     {object{"metadata": list{object{}, object{"_subset_": 1}}}, "document 1: bad metadata: key \"_subset_\" is reserved"},
		"no object":    {object{"metadata": list{object{}, list{1}}}, "document 1: bad metadata: it is no JSON object"},
		"number":       {object{"metadata": list{object{}, object{"_id": 7.5}}}, "document 1: _id is 7.5"},
		"no room":      {object{"metadata": list{object{}, object{"_id": long}}, "window": 2}, "leave room for the numbers of passages"},
		"kept and own": {object{"keep_metadata": true, "text_field": "text"}, "keep_metadata"},
	} {
		body := object{"documents": list{"cats", "dogs"}}
		for key, value := range c.more {
			body[key] = value
		}
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/texts/update_with_encoding", body)
		require.Contains(t, p.Message, c.says, name)
	}
}
