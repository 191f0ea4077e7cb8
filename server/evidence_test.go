package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// evidence is a result with passages and words.
type evidence struct {
	Results []struct {
		Documents []uint32   `json:"document_ids"`
		IDs       []string   `json:"ids"`
		Scores    []float64  `json:"scores"`
		Metadata  []object   `json:"metadata"`
		Spans     [][]object `json:"spans"`
		Notes     []string   `json:"notes"`
		Passages  [][]struct {
			Document uint32 `json:"document_id"`
			ID       string
			Score    float64
			Number   int `json:"n"`
			Start    int
			End      int
			Metadata object
			Spans    []object
		} `json:"passages"`
	} `json:"results"`
}

// addParts stores documents, each of passages.
func (s *service) addParts(t testing.TB, parts map[string][]string) {
	t.Helper()
	var docs, metadata list
	for _, of := range []string{"cat", "dog", "fish"} {
		at := 0
		for n, text := range parts[of] {
			docs = append(docs, object{"embeddings": matrix(text)})
			m := object{"_id": fmt.Sprintf("%s#%d", of, n), "kind": of, "text": text}
			m["_passage"] = object{"of": of, "n": n, "start": at, "end": at + len(text)}
			at += len(text) + 1
			metadata = append(metadata, m)
		}
	}
	s.ok(t, 202, "POST", "/indices/parts/update", object{"documents": docs, "metadata": metadata}, nil)
}

func TestDocumentsOfPassages(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
	s.addParts(t, map[string][]string{"cat": {"cats sleep", "cats eat fish", "cats bark never"}, "dog": {"dogs bark", "dogs sleep"}, "fish": {"fish swim"}})
	find := func(body object) (e evidence) {
		t.Helper()
		s.ok(t, 200, "POST", "/indices/parts/search_with_encoding", body, &e)
		return e
	}
	for _, group := range []string{"best", "sum", "maxsim"} {
		e := find(object{"queries": list{"cats sleep"}, "group": group, "passages": 2, "highlight": true})
		r := e.Results[0]
		require.Len(t, r.Documents, 3)
		require.Equal(t, "cat", r.Metadata[0]["_id"])
		require.Equal(t, object{"_id": "cat", "kind": "cat", "_subset_": r.Metadata[0]["_subset_"]}, r.Metadata[0], "what is the document's")
		best := r.Passages[0][0]
		require.Equal(t, "cat#0", best.ID)
		require.Equal(t, r.Documents[0], best.Document)
		require.Equal(t, []int{0, 0, 10}, []int{best.Number, best.Start, best.End})
		require.Equal(t, "cats sleep", best.Metadata["text"])
		require.Len(t, r.Passages[0], 2)
		require.Len(t, r.Passages[2], 1)
		require.Len(t, best.Spans, 2)
		require.Equal(t, "cats", best.Spans[0]["word"])
		require.Equal(t, "text", best.Spans[0]["field"])
		require.Equal(t, 4.0, best.Spans[0]["end"])
		require.Nil(t, r.Spans)
		require.Empty(t, r.Notes)
	}
	e := find(object{"queries": list{"cats sleep"}, "group": "best", "metadata": false, "params": object{"top_k": 2}, "ids": list{"dog", "fish#0"}})
	require.Equal(t, []string{"dog", "fish"}, e.Results[0].IDs, "the id of a document lets its passages through")
	require.Nil(t, e.Results[0].Passages[0][0].Metadata)
	e = find(object{"queries": list{"cats sleep"}, "highlight": true, "params": object{"top_k": 1}})
	require.Nil(t, e.Results[0].Passages)
	require.Len(t, e.Results[0].Spans[0], 2)

	// What is liked is found by what it has.
	e = find(object{"queries": list{"cats"}, "params": object{"top_k": 1}, "feedback": object{"like": list{"fish"}}, "filter_condition": "kind != 'cat'"})
	require.Equal(t, "fish#0", e.Results[0].Metadata[0]["_id"])
	s.refused(t, 404, server.CodeDocumentNotFound, "POST", "/indices/parts/search_with_encoding", object{"queries": list{"x"}, "feedback": object{"like": list{"nobody"}}})

	// A document that is sent again replaces all its passages, and goes with them.
	s.addParts(t, map[string][]string{"cat": {"cats purr"}})
	var n struct{ Count int }
	s.ok(t, 200, "GET", "/indices/parts/metadata/count", nil, &n)
	require.Equal(t, 4, n.Count)
	var said string
	s.ok(t, 202, "DELETE", "/indices/parts/documents", object{"ids": list{"dog"}}, &said)
	require.Contains(t, said, "2 documents")
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/update", object{
		"documents": list{object{"embeddings": matrix("x")}}, "metadata": list{object{"_id": "a#1", "_passage": object{"of": "b", "n": 1}}},
	})
	for _, bad := range []object{
		{"queries": list{"x"}, "group": "worst"}, {"queries": list{"x"}, "passages": 2}, {"queries": list{"x"}, "group": "best", "passages": -1},
		{"queries": list{"x"}, "feedback": object{}}, {"text_query": list{"x"}, "feedback": object{"documents": 1}},
		{"text_query": list{"x"}, "group": "best"}, {"text_query": list{"x"}, "highlight": true},
	} {
		s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/search_with_encoding", bad)
	}
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/search", object{"queries": list{query("x")}, "highlight": true})
}

// That a document is a passage is not changed by who sets fields, to nothing either.
func TestPassagesStayWhatTheyAre(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
	s.addParts(t, map[string][]string{"cat": {"cats sleep", "cats eat fish"}})
	for _, value := range []any{nil, 1, list{}, object{"of": "b"}} {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/metadata/update", object{"condition": "kind = 'cat'", "updates": object{"_passage": value}})
		require.Contains(t, p.Message, "_passage")
	}
}
