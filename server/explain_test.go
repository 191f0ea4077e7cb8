package server_test

import (
	"fmt"
	"maps"
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
	s := startPets(t)
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

// startParts is a service with an index for documents of passages.
func startParts(t testing.TB, o *server.Options) *service {
	t.Helper()
	s := start(t, words{}, o)
	s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
	return s
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
	s := startParts(t, nil)
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
	var n struct{ Count, Passages int }
	s.ok(t, 200, "GET", "/indices/parts/metadata/count", nil, &n)
	require.Equal(t, []int{3, 4}, []int{n.Count, n.Passages})
	var said string
	s.ok(t, 202, "DELETE", "/indices/parts/documents", object{"ids": list{"dog"}}, &said)
	require.Equal(t, "1 document in 2 passages deleted from index parts", said)
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/update", object{
		"documents": list{object{"embeddings": matrix("x")}}, "metadata": list{object{"_id": "a#1", "_passage": object{"of": "b", "n": 1}}},
	})
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/update", object{
		"documents": list{object{"embeddings": matrix("x")}}, "metadata": list{object{"_passage": object{"of": "b", "n": 1}}},
	})
	require.Equal(t, `document 0: bad metadata: malformed: field _passage: the id of that passage has to be "b#1"`, p.Message, "no file is spoken of")
	p = s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/update", object{
		"documents": list{object{"embeddings": matrix("x")}, object{"embeddings": matrix("x")}}, "metadata": list{object{"_id": "new"}, object{"_id": "new"}},
	})
	require.Equal(t, `document 1 (id "new"): id is taken: document 0 has the same`, p.Message, "it is not in the index")
	for _, bad := range []object{
		{"queries": list{"x"}, "group": "worst"}, {"queries": list{"x"}, "passages": 2}, {"queries": list{"x"}, "group": "best", "passages": -1},
		{"queries": list{"x"}, "feedback": object{}}, {"text_query": list{"x"}, "feedback": object{"documents": 1}},
		{"text_query": list{"x"}, "group": "sum"}, {"text_query": list{"+x"}, "text_mode": "expression", "highlight": true},
		{"queries": list{"x"}, "feedback": object{"like": list{"cat"}, "unlike": list{"cat"}}},
	} {
		s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/search_with_encoding", bad)
	}
	for _, bad := range []object{{"queries": list{query("x")}, "highlight": true}, {"text_query": list{"x"}, "highlight": true}} {
		s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/search", bad)
	}
}

// Words are shown of what words have found, or both sides, and feedback adds to the queries.
func TestEvidenceByWords(t *testing.T) {
	s := startParts(t, nil)
	s.addParts(t, map[string][]string{"cat": {"cats sleep", "cats eat fish"}, "dog": {"dogs bark", "dogs sleep"}, "fish": {"fish swim"}})
	for _, group := range []string{"", "best", "maxsim"} {
		for _, queries := range []list{nil, {"cats sleep"}} {
			body := object{"text_query": list{"fish sleep"}, "highlight": true, "params": object{"top_k": 3}, "metadata": group == "best"}
			if queries != nil {
				body["queries"] = queries
			}
			if group != "" && (queries != nil || group == "best") {
				body["group"], body["passages"] = group, 2
			}
			var e evidence
			s.ok(t, 200, "POST", "/indices/parts/search_with_encoding", body, &e)
			r := e.Results[0]
			require.Len(t, r.Documents, 3)
			require.Empty(t, r.Notes)
			shown := map[string]bool{}
			show := func(spans []object) {
				for _, span := range spans {
					shown[span["word"].(string)] = true
				}
			}
			for i := range r.Documents {
				if body["group"] == nil {
					show(r.Spans[i])
					continue
				}
				require.Nil(t, r.Spans)
				for _, p := range r.Passages[i] {
					show(p.Spans)
				}
			}
			want := map[string]bool{"fish": true, "sleep": true} // of the question, in what was found
			if queries != nil {
				want = map[string]bool{"cats": true, "sleep": true}
			}
			require.Equal(t, want, shown, "%v", body)
		}
	}
	// Feedback adds to the queries, also while a collection is too small to be trained.
	for _, ask := range []object{{"queries": list{"cats"}}, {"queries": list{"cats"}, "text_query": list{"swim"}, "alpha": 0.9}} {
		scores := func(feedback object) map[any]float64 {
			body := maps.Clone(ask)
			if feedback != nil {
				body["feedback"] = feedback
			}
			var e evidence
			s.ok(t, 200, "POST", "/indices/parts/search_with_encoding", body, &e)
			require.Empty(t, e.Results[0].Notes)
			by := map[any]float64{}
			for i, m := range e.Results[0].Metadata {
				by[m["_id"]] = e.Results[0].Scores[i]
			}
			return by
		}
		plain := scores(nil)
		require.NotEqual(t, plain, scores(object{"like": list{"fish"}}))
		require.NotEqual(t, plain, scores(object{"unlike": list{"cat"}}))
	}
	s.refused(t, 404, server.CodeDocumentNotFound, "POST", "/indices/parts/search_with_encoding", object{"queries": list{"cats"}, "text_query": list{"swim"}, "feedback": object{"like": list{"nobody"}}})
}

// Rankings by words, and by both, are of documents too, of as many as are wanted.
func TestDocumentsOfPassagesByWords(t *testing.T) {
	s := startParts(t, nil)
	many := make([]string, 40)
	for i := range many {
		many[i] = "cats sleep"
	}
	s.addParts(t, map[string][]string{"cat": many, "dog": {"dogs bark at cats all night long", "dogs sleep"}, "fish": {"fish swim", "fish and cats and other animals do not get along well"}})
	find := func(body object) (e evidence) {
		t.Helper()
		body["params"] = object{"top_k": 3}
		path := "/indices/parts/search"
		if body["queries"] != nil {
			path += "_with_encoding"
		}
		s.ok(t, 200, "POST", path, body, &e)
		return e
	}
	r := find(object{"text_query": list{"cats"}, "group": "best", "passages": 2}).Results[0]
	require.Equal(t, "cat", r.Metadata[0]["_id"])
	require.NotContains(t, r.Metadata[0], "text")
	require.Len(t, r.Metadata, 3, "40 passages of one document hide no other one")
	require.Equal(t, "dog", r.Metadata[1]["_id"])
	require.Equal(t, "dog#0", r.Passages[1][0].ID)
	require.Equal(t, []int{0, 0, 32}, []int{r.Passages[1][0].Number, r.Passages[1][0].Start, r.Passages[1][0].End})
	require.Len(t, r.Passages[0], 2)
	require.Equal(t, r.Scores[0], r.Passages[0][0].Score)
	// The best passage by the words is another one than by the vectors.
	for _, group := range []string{"best", "sum", "maxsim"} {
		r = find(object{"queries": list{"dogs sleep"}, "text_query": list{"night dogs"}, "group": group, "alpha": 0.5}).Results[0]
		require.Len(t, r.Metadata, 3)
		require.Equal(t, "dog", r.Metadata[0]["_id"])
		require.Len(t, r.Passages[0], 2)
		ids := map[any]bool{}
		for _, m := range r.Metadata {
			require.False(t, ids[m["_id"]], "a document comes once")
			ids[m["_id"]] = true
		}
	}
	require.Len(t, find(object{"text_query": list{"nothing has this"}, "group": "best"}).Results[0].Metadata, 0)
}

// The id of a document that is stored as passages stands for these.
func TestDocumentsOfPassagesByID(t *testing.T) {
	s := startParts(t, nil)
	s.addParts(t, map[string][]string{"cat": {"cats sleep", "cats eat fish", "cats purr"}, "dog": {"dogs bark"}})
	get := func(query string) (ids []string) {
		t.Helper()
		var out struct {
			Documents []struct {
				ID      string
				Passage struct {
					Of string
					N  int
				}
			}
			Count int
		}
		s.ok(t, 200, "GET", "/indices/parts/documents?"+query, nil, &out)
		for _, d := range out.Documents {
			require.Equal(t, d.ID, fmt.Sprint(d.Passage.Of, "#", d.Passage.N))
			ids = append(ids, d.ID)
		}
		require.Equal(t, len(ids), out.Count)
		return ids
	}
	require.Equal(t, []string{"cat#0", "cat#1", "cat#2"}, get("id=cat"))
	require.Equal(t, []string{"cat#2", "cat#0", "cat#1", "cat#2", "dog#0"}, get("id=cat%232&id=cat&id=dog"))
	require.Equal(t, []string{"cat#0", "cat#1", "cat#2", "cat#1", "cat#1"}, get("id=cat&id=cat%231&id=cat%231"))
	s.refused(t, 404, server.CodeDocumentNotFound, "GET", "/indices/parts/documents?id=cat&id=nobody", nil)
	var updated struct{ Updated, Passages int }
	s.ok(t, 200, "POST", "/indices/parts/metadata/update", object{"ids": list{"cat", "nobody"}, "updates": object{"seen": true}}, &updated)
	require.Equal(t, []int{1, 3}, []int{updated.Updated, updated.Passages})
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/metadata/update", object{"ids": list{"cat"}, "condition": "kind = 'cat'", "updates": object{"seen": true}})
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/metadata/update", object{"updates": object{"seen": true}})
	var x struct{ ID string }
	s.ok(t, 200, "POST", "/indices/parts/explain", object{"text": "cats eat", "id": "cat"}, &x)
	require.Equal(t, "cat#1", x.ID)
	s.refused(t, 404, server.CodeDocumentNotFound, "POST", "/indices/parts/explain", object{"text": "cats eat", "id": "nobody"})
}

// Every count of documents counts one of passages once; passages have a count of their own.
func TestPassagesAreCounted(t *testing.T) {
	s := startParts(t, nil)
	s.addParts(t, map[string][]string{"cat": {"cats sleep", "cats eat fish", "cats purr"}})
	s.ok(t, 202, "POST", "/indices/parts/update", object{"documents": list{object{"embeddings": matrix("C")}}, "metadata": list{object{"_id": "C#7"}}}, nil)
	type size struct {
		Documents int     `json:"num_documents"`
		Passages  int     `json:"num_passages"`
		Tokens    int     `json:"num_embeddings"`
		Length    float64 `json:"avg_doclen"`
	}
	want := size{2, 3, 8, 4}
	var info size
	s.ok(t, 200, "GET", "/indices/parts", nil, &info)
	require.Equal(t, want, info)
	var health struct{ Indices []size }
	s.ok(t, 200, "GET", "/health", nil, &health)
	require.Equal(t, []size{want}, health.Indices)
	var stats struct {
		Documents, Passages, Metadata int
		Counts                        struct{ Documents int }
	}
	s.ok(t, 200, "GET", "/indices/parts/stats", nil, &stats)
	require.Equal(t, []int{2, 3, 1, 2}, []int{stats.Documents, stats.Passages, stats.Metadata, stats.Counts.Documents})
	figures := s.send(t, "GET", "/metrics", nil).body
	require.Contains(t, string(figures), `plaid_index_documents{index="parts"} 2`)
	require.Contains(t, string(figures), `plaid_index_passages{index="parts"} 3`)
	var found struct{ Documents []object }
	s.ok(t, 200, "GET", "/indices/parts/documents?id=C%237", nil, &found)
	require.NotContains(t, found.Documents[0], "passage", "only its metadata make it one")
}

// What a search holds beside its hits counts before it is held.
func TestEvidenceIsCounted(t *testing.T) {
	limited := func(answer int64) *service {
		s := start(t, words{}, &server.Options{Limits: server.Limits{Answer: answer}})
		s.ok(t, 200, "POST", "/indices", object{"name": "parts"}, nil)
		s.addParts(t, map[string][]string{"cat": {"cats sleep", "cats eat fish"}, "dog": {"dogs bark"}})
		return s
	}
	small := limited(2 << 10)
	ask := func(s *service, more object) int {
		body := object{"queries": list{"cats sleep", "dogs bark", "fish"}, "metadata": false}
		for k, v := range more {
			body[k] = v
		}
		return s.send(t, "POST", "/indices/parts/search_with_encoding", body).status
	}
	require.Equal(t, 200, ask(small, nil))
	for _, more := range []object{{"highlight": true, "group": "sum", "passages": 3}, {"feedback": object{"documents": 3}}} {
		require.Equal(t, 413, ask(small, more), more)
		require.Equal(t, 200, ask(limited(1<<20), more), more)
	}
}

// That a document is a passage is not changed by who sets fields, to nothing either.
func TestPassagesStayWhatTheyAre(t *testing.T) {
	s := startParts(t, nil)
	s.addParts(t, map[string][]string{"cat": {"cats sleep", "cats eat fish"}})
	for _, value := range []any{nil, 1, list{}, object{"of": "b"}} {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/parts/metadata/update", object{"condition": "kind = 'cat'", "updates": object{"_passage": value}})
		require.Contains(t, p.Message, "_passage")
	}
}
