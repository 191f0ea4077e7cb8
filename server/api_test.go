package server_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// pets are documents with metadata, in an index of that name.
var pets = []struct{ id, text, title string }{
	{"a", "cats sleep all day", "cats"}, {"b", "dogs bark at night", "dogs"}, {"c", "birds sing in the morning", "birds"},
}

func startPets(t testing.TB) *service {
	t.Helper()
	s := start(t, words{}, nil)
	s.addPets(t)
	return s
}

func (s *service) addPets(t testing.TB) {
	t.Helper()
	s.ok(t, 200, "POST", "/indices", object{"name": "pets"}, nil)
	var docs, metadata list
	for i, p := range pets {
		docs = append(docs, object{"embeddings": matrix(p.text)})
		metadata = append(metadata, object{"_id": p.id, "title": p.title, "text": p.text, "year": 2019 + i})
	}
	var said string
	s.ok(t, 202, "POST", "/indices/pets/update", object{"documents": docs, "metadata": metadata}, &said)
	require.Contains(t, said, "3 documents")
}

type found struct {
	Results []struct {
		Query     int       `json:"query_id"`
		Documents []uint32  `json:"document_ids"`
		Scores    []float32 `json:"scores"`
		Metadata  []object  `json:"metadata"`
		Stats     object    `json:"stats"`
	} `json:"results"`
	Queries int `json:"num_queries"`
}

func (s *service) search(t testing.TB, path string, body object) found {
	t.Helper()
	var f found
	s.ok(t, 200, "POST", "/indices/pets/search"+path, body, &f)
	return f
}

func query(text string) object { return object{"embeddings": matrix(text)} }

func TestSearchForms(t *testing.T) {
	s := startPets(t)
	raw := make([]byte, 0, 4*wordDim)
	for _, x := range flat("cats sleep") {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	b64 := object{"embeddings_b64": base64.StdEncoding.EncodeToString(raw), "shape": []int{2, wordDim}}
	nested := s.search(t, "", object{"queries": list{query("cats sleep")}})
	require.Equal(t, nested, s.search(t, "", object{"queries": list{b64}}))
	b64["embeddings"] = matrix("dogs bark") // base64 wins
	require.Equal(t, nested, s.search(t, "", object{"queries": list{b64}}))
	require.Equal(t, nested, s.search(t, "_with_encoding", object{"queries": list{"cats sleep"}}))
	require.Equal(t, []uint32{0}, nested.Results[0].Documents[:1])
	require.Equal(t, object{"_subset_": 0., "_id": "a", "title": "cats", "text": "cats sleep all day", "year": 2019.}, nested.Results[0].Metadata[0])

	without := s.search(t, "", object{"queries": list{query("cats")}, "metadata": false, "stats": true})
	require.Nil(t, without.Results[0].Metadata)
	require.Equal(t, 1., without.Results[0].Stats["queries"])

	for _, mode := range []string{"pruned", "exhaustive"} {
		f := s.search(t, "", object{"queries": list{query("cats sleep")}, "params": object{"mode": mode, "top_k": 2}})
		require.Equal(t, nested.Results[0].Documents[:2], f.Results[0].Documents, mode)
		require.Equal(t, nested.Results[0].Scores[:2], f.Results[0].Scores, mode)
	}
	candidates := s.search(t, "", object{"queries": list{query("cats sleep")}, "params": object{"mode": "candidates"}, "ids": list{"b", "c", "nobody"}})
	require.ElementsMatch(t, []uint32{1, 2}, candidates.Results[0].Documents)
}

func TestSearchRestrictions(t *testing.T) {
	s := startPets(t)
	for name, c := range map[string]struct {
		body object
		want []uint32
	}{
		"all":               {object{}, []uint32{0, 1, 2}},
		"subset":            {object{"subset": list{1, 2, 77, -4}}, []uint32{1, 2}},
		"empty subset":      {object{"subset": list{}}, []uint32{}},
		"null is no subset": {object{"subset": nil}, []uint32{0, 1, 2}},
		"ids":               {object{"ids": list{"a", "x"}}, []uint32{0}},
		"condition":         {object{"filter_condition": "year >= ?", "filter_parameters": list{2020}}, []uint32{1, 2}},
		"literals":          {object{"filter_condition": "year >= 2020 AND title <> 'birds'"}, []uint32{1}},
		"literal and value": {object{"filter_condition": "year >= 2020 AND title <> ?", "filter_parameters": list{"birds"}}, []uint32{1}},
		"both":              {object{"subset": list{0, 1}, "filter_condition": "year >= ?", "filter_parameters": list{2020}}, []uint32{1}},
		"none":              {object{"filter_condition": "year > ?", "filter_parameters": list{3000}}, []uint32{}},
		"more than there":   {object{"params": object{"top_k": 1000}}, []uint32{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"", "_with_encoding"} {
				c.body["queries"] = list{query("cats and dogs")}
				if path != "" {
					c.body["queries"] = list{"cats and dogs"}
				}
				f := s.search(t, path, c.body)
				require.ElementsMatch(t, c.want, f.Results[0].Documents)
				require.Len(t, f.Results[0].Scores, len(c.want))
				require.NotNil(t, f.Results[0].Documents)
			}
		})
	}
	// Each query of a batch has its own, within what holds for all.
	own := []object{query("cats"), query("cats"), query("cats"), query("cats")}
	own[1]["subset"] = list{1}
	own[2]["filter_condition"], own[2]["filter_parameters"] = "title = ?", list{"birds"}
	own[3]["ids"] = list{"a"}
	f := s.search(t, "", object{"queries": own, "subset": list{0, 1, 2}})
	require.Equal(t, 4, f.Queries)
	for i, want := range [][]uint32{{0, 1, 2}, {1}, {2}, {0}} {
		require.ElementsMatch(t, want, f.Results[i].Documents, i)
		require.Equal(t, i, f.Results[i].Query)
	}
	texts := s.search(t, "_with_encoding", object{"queries": list{"cats", object{"text": "cats", "subset": list{2}}}})
	require.Len(t, texts.Results[0].Documents, 3)
	require.Equal(t, []uint32{2}, texts.Results[1].Documents)
	var found struct {
		Documents []uint32 `json:"document_ids"`
		Updated   int      `json:"updated"`
	}
	s.ok(t, 200, "POST", "/indices/pets/metadata/query", object{"condition": "year IN (2020, 2021)"}, &found)
	require.Len(t, found.Documents, 2)
	s.ok(t, 200, "POST", "/indices/pets/metadata/update", object{"condition": "title = 'birds'", "updates": object{"wings": 2}}, &found)
	require.Equal(t, 1, found.Updated)
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("cats"), object{"embeddings": matrix("cats"), "filter_condition": "year > ?"}}})
	require.Equal(t, 1, *p.Details.Query)
}

// What is wrong with a request is told before anything happens, and where it is.
func TestBadRequests(t *testing.T) {
	s := startPets(t)
	s.ok(t, 200, "POST", "/indices", object{"name": "empty"}, nil)
	doc := func(extra object) object {
		body := object{"documents": list{object{"embeddings": matrix("fine")}}}
		for k, v := range extra {
			body[k] = v
		}
		return body
	}
	nan := base64.StdEncoding.EncodeToString([]byte{0, 0, 0xc0, 0x7f})
	for _, c := range []struct {
		status       int
		code         server.Code
		method, path string
		body         any
		says         string
	}{
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": ""}, "empty"},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": "../evil"}, ""},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": "a/b"}, ""},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": ".hidden"}, ""},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": strings.Repeat("n", 300)}, "300"},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": "x", "config": object{"nbits": 3}}, "nbits"},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": "x", "config": object{"fts_tokenizer": "zzz"}}, "zzz"},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": "x", "config": object{"nbits": "4"}}, "whole number"},
		{409, server.CodeIndexExists, "POST", "/indices", object{"name": "pets"}, "pets"},
		{404, server.CodeIndexNotFound, "GET", "/indices/none", nil, "not found"},
		{404, server.CodeIndexNotFound, "GET", "/indices/empty", nil, "not found"},
		{404, server.CodeIndexNotFound, "POST", "/indices/empty/search", object{"queries": list{query("x")}}, ""},
		{404, server.CodeIndexNotFound, "GET", "/indices/empty/metadata", nil, ""},
		{404, server.CodeIndexNotDeclared, "POST", "/indices/none/update", doc(nil), "not found"},

		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{}}, "empty"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{}}}, "missing"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings": list{list{}}}}}, "token 0"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings": list{list{1, 2}, list{1}}}}}, "token 1"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings": list{list{1, nil}}}}}, "component 1"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings": list{list{"x"}}}}}, "want a number"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", `{"documents": [{"embeddings": [[1e99]]}]}`, "1e99"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings_b64": nan, "shape": list{1, 1}}}}, "finite"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings_b64": nan, "shape": list{2, 1}}}}, "4 bytes"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings_b64": nan, "shape": list{-1, -1}}}}, "shape"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings_b64": "????", "shape": list{1, 1}}}}, "base64"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings_b64": 7, "shape": list{1, 1}}}}, "string"},
		{400, server.CodeDimension, "POST", "/indices/pets/update", object{"documents": list{object{"embeddings": matrix("x")}, object{"embeddings": list{list{1, 2}}}}}, "document 1"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", doc(object{"metadata": list{object{}, object{}}}), "one for each"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", doc(object{"metadata": list{7}}), "object"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", doc(object{"metadata": list{object{"_Subset_": 1}}}), "_Subset_"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", doc(object{"metadata": list{object{"_subset_": 1}}}), "reserved"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", doc(object{"metadata": list{object{"_id": 7.5}}}), "_id is 7.5"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", doc(object{"metadata": list{object{"_id": ""}}}), "_id"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", object{"documents": list{query("x"), query("y")}, "metadata": list{object{"_id": "q"}, object{"_id": "q"}}}, "document 1"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", `{"documents": `, "not JSON"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", `{"documents": []} {}`, "more after"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", `[]`, "object"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update", `{"documents": 7}`, "list"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/update_with_encoding", object{"documents": list{"a"}, "pool_factor": 0}, "pool_factor"},
		{400, server.CodeBadRequest, "DELETE", "/indices/pets/documents", object{}, "condition"},
		{400, server.CodeBadRequest, "DELETE", "/indices/pets/documents", object{"condition": "year ="}, ""},
		{400, server.CodeBadRequest, "DELETE", "/indices/pets/documents", object{"condition": "year = ?", "parameters": list{1}, "ids": list{"a"}}, ""},

		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{}, "queries"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{object{"embeddings": list{list{1, 2}, list{3}}}}}, "query 0: token 1"},
		{400, server.CodeDimension, "POST", "/indices/pets/search", object{"queries": list{query("x"), object{"embeddings": list{list{1, 2}}}}}, "query 1"},
		{400, server.CodeDimension, "POST", "/indices/pets/search", object{"queries": list{object{"embeddings": list{list{1, 2}}}}}, "dimension"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "params": object{"top_k": 0}}, "params.top_k is 0; want 1 or more"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "params": object{"top_k": -1}}, "top_k"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "params": object{"top_k": "4"}}, "whole number"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "params": object{"mode": "fast"}}, "fast"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "params": object{"mode": "candidates"}}, "candidates"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "filter_parameters": list{1}}, "filter_parameters"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "filter_condition": "nope = ?", "filter_parameters": list{1}}, "nope"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "filter_condition": "year = ?"}, ""},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "filter_condition": "year = 5;"}, ""},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "text_query": list{"a", "b"}}, "one for each"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "text_query": list{"a"}, "alpha": 1.5}, "alpha"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", object{"queries": list{query("x")}, "text_query": list{"a"}, "fusion": "sum"}, "sum"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search/filtered", object{"queries": list{query("x")}}, "filter_condition"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search_with_encoding", object{"queries": list{""}}, "empty"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/explain", object{"text": "x"}, "document"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/explain", object{"document_id": 1}, "query"},
		{404, server.CodeDocumentNotFound, "POST", "/indices/pets/explain", object{"text": "x", "document_id": 9}, "9"},
		{404, server.CodeDocumentNotFound, "POST", "/indices/pets/explain", object{"text": "x", "id": "nobody"}, "nobody"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/metadata/get", object{"document_ids": list{1}, "condition": "year = ?"}, "one of them"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/metadata/get", object{"limit": -1}, "limit"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/metadata/query", object{"condition": ""}, "empty"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/metadata/update", object{"condition": "", "updates": object{}}, "empty"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/metadata/update", object{"ids": list{"a"}, "parameters": list{1}, "updates": object{"x": 1}}, "parameters without a condition"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/metadata/update", object{"condition": "year > ?", "parameters": list{0}, "updates": object{"_id": 1}}, "_id"},
		{400, server.CodeBadRequest, "GET", "/indices/pets/documents", nil, "needed"},
		{400, server.CodeBadRequest, "GET", "/indices/pets/documents?document_id=x", nil, "whole number"},
		{400, server.CodeBadRequest, "GET", "/indices/pets/documents?id=a&vectors=xml", nil, "xml"},
		{404, server.CodeDocumentNotFound, "GET", "/indices/pets/documents?document_id=9", nil, "9"},
		{404, server.CodeDocumentNotFound, "GET", "/indices/pets/documents?id=x", nil, "x"},
		{400, server.CodeBadRequest, "POST", "/encode", object{"texts": list{}, "input_type": "query"}, "no texts"},
		{400, server.CodeBadRequest, "POST", "/encode", object{"texts": list{"a"}, "input_type": "Query"}, "Query"},
		{400, server.CodeBadRequest, "POST", "/rerank", object{"query": matrix("a"), "documents": list{}}, "empty"},
		{400, server.CodeBadRequest, "POST", "/rerank", object{"documents": list{query("a")}}, "query"},
		{400, server.CodeDimension, "POST", "/rerank", object{"query": matrix("a"), "documents": list{query("a"), object{"embeddings": list{list{1}}}}}, "document 1"},
		{404, server.CodeNoRoute, "GET", "/nothing", nil, "no such route"},
		{405, server.CodeMethod, "PATCH", "/indices", nil, "PATCH"},
	} {
		t.Run(fmt.Sprintf("%s %s %.60v", c.method, c.path, c.body), func(t *testing.T) {
			p := s.refused(t, c.status, c.code, c.method, c.path, c.body)
			require.Contains(t, p.Message, c.says)
		})
	}
	// Nothing of it was stored.
	var info object
	s.ok(t, 200, "GET", "/indices/pets", nil, &info)
	require.Equal(t, 3., info["num_documents"])
	var names []string
	s.ok(t, 200, "GET", "/indices", nil, &names)
	require.Equal(t, []string{"empty", "pets"}, names)
}

// Paths are taken as they were sent: nothing is cleaned, and what is escaped is part
// of a name.
func TestHostilePaths(t *testing.T) {
	s := start(t, nil, nil)
	for _, path := range []string{
		"/indices/..%2f..%2fetc", "/indices/%2e%2e", "/indices/../metrics", "/indices/./x", "/indices/a%2Fb", "/indices/a%00b",
		"/indices/", "/indices/%2e%2e/documents?id=x", "/indices/a%5Cb", "/indices/" + strings.Repeat("n", 300), "/indices/%C3%A4",
	} {
		r := s.send(t, "GET", path, nil)
		require.Equal(t, 400, r.status, "%s: %s", path, r.body)
		isProblem(t, r, server.CodeBadRequest)
	}
	r := s.send(t, "GET", "//", nil)
	require.Equal(t, 404, r.status, r.body)
}

func TestMediaTypes(t *testing.T) {
	s := start(t, nil, nil)
	body := `{"name": "x"}`
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense;;"} {
		s.refused(t, 415, server.CodeMediaType, "POST", "/indices", body, "Content-Type: "+media)
	}
	for i, media := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"} {
		r := s.send(t, "POST", "/indices", fmt.Sprintf(`{"name": "x%d"}`, i), "Content-Type: "+media)
		require.Equal(t, 200, r.status, r.body)
	}
}

// Unknown fields are errors that name the field which was meant, unless they are to be
// passed over.
func TestUnknownFields(t *testing.T) {
	s := startPets(t)
	search := "/indices/pets/search"
	for _, c := range []struct {
		path, body, says string
	}{
		{search, `{"querys": []}`, `unknown field "querys": did you mean "queries"?`},
		{search, `{"queries": [{"embeddings": [[1]]}], "top_k": 3}`, `unknown field "top_k": did you mean "params.top_k"?`},
		{search, `{"queries": [ {"embeddings" : [[1],[2 ]], "ids":["}\"]"]} , {"embeddings":null,"weigths":[1]}]}`, `unknown field "queries[1].weigths": did you mean "queries[1].weights"?`},
		{search, `{"queries": [], "params": {"text_query": ["a"]}}`, `unknown field "params.text_query": did you mean "text_query"?`},
		{search, `{"mask": [true]}`, `unknown field "mask": did you mean "queries[].mask"?`},
		{search, `{"queries": [], "limit": 3}`, `unknown field "limit": did you mean "params.top_k"?`},
		{search, `{"queries": [], "params": {"k": 3}}`, `unknown field "params.k": did you mean "params.top_k"?`},
		{search, `{"queries": [], "where": "year > 3"}`, `unknown field "where": did you mean "filter_condition"?`},
		{search, `{"params": {"zzz": 1}}`, `unknown field "params.zzz": known here are `},
		{search + "_with_encoding", `{"queries": ["cats", {"text": "dogs", "filter": "year > 3"}]}`, `unknown field "queries[1].filter": known here are `},
		{search + "_with_encoding", `{"query": ["cats"]}`, `unknown field "query": did you mean "queries"?`},
		{search, `{"text_query": ["cats"], "filter_condition": "yeer > 3"}`, `unknown field yeer (there are, nearest first: year, `},
		{"/indices", `{"name": "b", "nbits": 2}`, `unknown field "nbits": did you mean "config.nbits"?`},
		{"/indices/pets/update", `{"documents": [{"embeddings": [[1]], "_id": "a"}]}`, `unknown field "documents[0]._id": known here are `},
		{"/indices/pets/metadata/update", `{"condition": "1=1", "set": {"x": 1}}`, `unknown field "set": known here are `},
	} {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", c.path, c.body)
		require.Contains(t, p.Message, c.says, c.body)
		if strings.HasPrefix(c.says, `unknown field "queries[1]`) {
			require.Equal(t, 1, *p.Details.Query)
		}
	}
	require.Equal(t, 200, s.send(t, "POST", "/indices", object{"name": "a", "colour": "red"}, "Prefer: respond-async, handling=lenient").status)
	s.ok(t, 200, "POST", search, object{"queries": list{query("cats")}, "PARAMS": object{"Top_K": 1}}, nil)
	s.ok(t, 200, "POST", "/indices/pets/metadata/update", object{"condition": "1=1", "updates": object{"anything": object{"at": list{"all"}}}}, nil)
	foreign := object{"input": "cats", "model": "m", "encoding_format": "float", "user": "me"}
	s.ok(t, 200, "POST", "/v1/embeddings", foreign, nil)
	s.refused(t, 400, server.CodeBadRequest, "POST", "/v1/embeddings", foreign, "Prefer: handling=strict")
}

// Texts where vectors are wanted, and vectors where texts are, are sent to the other route.
func TestTheOtherRoute(t *testing.T) {
	s := startPets(t)
	for _, c := range []struct{ path, body, says string }{
		{"/indices/pets/search", `{"queries": ["cats"]}`, "queries: a string is in the place of an object; texts go to POST /indices/{name}/search_with_encoding"},
		{"/indices/pets/search/filtered", `{"queries": ["cats"]}`, "texts go to POST /indices/{name}/search/filtered_with_encoding"},
		{"/indices/pets/update", `{"documents": ["cats"]}`, "texts go to POST /indices/{name}/update_with_encoding"},
		{"/indices/pets/update_with_encoding", `{"documents": ["a"], "window": {"size": 20}}`, "window: an object is in the place of a whole number"},
		{"/indices/pets/update", `{"documents": [{"embeddings": []}], "keep_metadata": "yes"}`, "keep_metadata: a string is in the place of a bool"},
		{"/indices/pets/update_with_encoding", `{"documents": [{"embeddings": [[1]]}]}`, "documents: an object is in the place of a string; vectors go to POST /indices/{name}/update"},
		{"/indices/pets/search_with_encoding", `{"queries": [[[1]]]}`, "vectors go to POST /indices/{name}/search"},
		{"/indices/pets/search_with_encoding", `{"queries": [{"embeddings": [[1]]}]}`, "vectors go to the route without _with_encoding"},
		{"/rerank", `{"query": [[1]], "documents": ["cats"]}`, "texts go to POST /rerank_with_encoding"},
		{"/rerank", `{"query": "cats", "documents": [{"embeddings": [[1]]}]}`, "query: want a list of lists of numbers"},
		{"/indices/pets/search", `[]`, "the body is an array; want an object"},
		{"/indices/pets/update_with_encoding", `{"documents": ["a"], "documents": ["b"]}`, `field "documents" is there twice: leave out one`},
		{"/indices/pets/search", `{"queries": [], "params": {"top_k": 1, "Top_K": 2}}`, `field "params.top_k" is there twice: leave out one`},
		{"/indices/pets/search", `{"queries": [{"embeddings": [[1]], "embeddings": [[2]]}]}`, `field "queries[0].embeddings" is there twice`},
	} {
		message := s.refused(t, 400, server.CodeBadRequest, "POST", c.path, c.body).Message
		require.Contains(t, message, c.says, c.body)
		require.NotContains(t, message, "In.", "the name of a type")
	}
}

func TestPreferRepresentation(t *testing.T) {
	s := startPets(t)
	r := s.send(t, "POST", "/indices/pets/update_with_encoding", object{"documents": list{"new words", "cats"}, "metadata": list{object{"_id": "a"}, nil}, "text_field": "text"}, "Prefer: return=representation")
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, "return=representation", r.header.Get("Preference-Applied"))
	var did struct {
		Documents []uint32 `json:"document_ids"`
		IDs       []string `json:"ids"`
	}
	r.json(t, &did)
	require.Equal(t, []uint32{3, 4}, did.Documents)
	require.Equal(t, "a", did.IDs[0])
	var got struct{ Documents []object }
	s.ok(t, 200, "GET", "/indices/pets/documents?id=a&document_id=1&vectors=json", nil, &got)
	require.Equal(t, 1., got.Documents[0]["document_id"])
	require.Equal(t, object{"_id": "a", "_subset_": 3., "text": "new words"}, got.Documents[1]["metadata"])
	require.Len(t, got.Documents[1]["embeddings"], 2)
	s.ok(t, 200, "GET", "/indices/pets/documents?document_id=3&vectors=base64", nil, &got)
	require.Equal(t, list{2., float64(wordDim)}, got.Documents[0]["shape"])
	raw, err := base64.StdEncoding.DecodeString(got.Documents[0]["embeddings_b64"].(string))
	require.NoError(t, err)
	require.Len(t, raw, 4*2*wordDim)
	require.InDelta(t, flat("new words")[0], math.Float32frombits(binary.LittleEndian.Uint32(raw)), .02)

	r = s.send(t, "DELETE", "/indices/pets/documents", object{"document_ids": list{3, 4, 99, -1}}, "Prefer: return=representation")
	require.Equal(t, 200, r.status, r.body)
	require.JSONEq(t, `{"deleted": 2, "passages": 0, "message": "2 documents deleted from index pets"}`, r.body)
	// A field that no document has is the error of a search, and deletes nothing, unless it
	// is said to be NULL.
	for _, condition := range []string{"yaer IS NULL", "NOT yaer = 1"} {
		r = s.send(t, "DELETE", "/indices/pets/documents", object{"condition": strings.ReplaceAll(condition, "1", "?"), "parameters": list{1}[:strings.Count(condition, "1")]})
		require.Equal(t, 400, r.status, r.body)
		require.Contains(t, r.body, "unknown field yaer (there are, nearest first: year")
	}
	r = s.send(t, "DELETE", "/indices/pets/documents", object{"condition": "yaer = 3 OR NOT yaer = 3"}, "Prefer: unknown-fields=null")
	require.Equal(t, 202, r.status, r.body)
	require.Contains(t, r.body, "0 documents deleted")
	r = s.send(t, "DELETE", "/indices/pets/documents", object{"ids": list{"b", "nobody"}})
	require.Equal(t, 202, r.status, r.body)
	var info object
	s.ok(t, 200, "GET", "/indices/pets", nil, &info)
	require.Equal(t, 1., info["num_documents"])
}

// Payloads of index files that were made elsewhere are shown too.
func TestMetadataOfOtherFiles(t *testing.T) {
	for payload, want := range map[string]string{
		``:                                     `{"_subset_":5,"_id":"x\"y"}`,
		`{}`:                                   `{"_subset_":5,"_id":"x\"y"}`,
		` { "a" : 1 } `:                        `{"_subset_":5,"_id":"x\"y","a" : 1}`,
		`{"_id": "old", "_subset_": 9, "b":2}`: `{"_subset_":5,"_id":"x\"y","b":2}`,
		`[1]`:                                  `{"_subset_":5,"_id":"x\"y","_metadata":[1]}`,
		`plain text`:                           `{"_subset_":5,"_id":"x\"y","_metadata":"plain text"}`,
	} {
		require.JSONEq(t, want, string(server.WithKeys([]byte(payload), 5, `x"y`)), payload)
	}
}

func TestHeadAndAllow(t *testing.T) {
	s := start(t, nil, nil)
	require.Equal(t, "[]", s.send(t, "GET", "/indices", nil).body) // null would be something else to clients
	r := s.send(t, "HEAD", "/livez", nil)
	require.Equal(t, http.StatusOK, r.status)
	r = s.send(t, "PATCH", "/indices/x", nil)
	require.Equal(t, "DELETE, GET, HEAD", r.header.Get("Allow"))
}

// A body where none is wanted is read, since a client that leaves is not noticed
// before its end, but not a long one.
func TestBodiesThatNobodyWants(t *testing.T) {
	s := start(t, nil, nil)
	s.addPets(t)
	s.ok(t, 200, "POST", "/indices/pets/verify", "{}", nil)
	s.ok(t, 200, "POST", "/indices/pets/verify", strings.Repeat(" ", 64<<10), nil)
	s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/pets/verify", strings.Repeat(" ", 64<<10+1))
}

// An update says how many documents gave way to those of the same id. Passages that come in two
// requests are one document each time, and the second takes the place of the first.
func TestUpdateSaysWhatWasReplaced(t *testing.T) {
	s := start(t, nil, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "books"}, nil)
	for _, step := range []struct {
		ids      string
		replaced int
		want     string
	}{
		{"page#0 page#1 page#2", 0, "1 document in 3 passages stored in index books"},
		{"page#3 page#4 page#5", 1, "1 document in 3 passages stored in index books, 1 replaced"},
		{"cat dog", 0, "2 documents stored in index books"},
		{"page#0 cat fish", 2, "3 documents in 1 passage stored in index books, 2 replaced"},
		{"page", 1, "1 document stored in index books, 1 replaced"},
	} {
		var docs, metadata list
		for _, id := range strings.Fields(step.ids) {
			m := object{"_id": id}
			if of, n := vectors.SplitPassageID(id); n >= 0 {
				m[vectors.PassageField] = object{"of": of, "n": n, "start": n, "end": n + 1}
			}
			docs, metadata = append(docs, query("cats")), append(metadata, m)
		}
		r := s.send(t, "POST", "/indices/books/update", object{"documents": docs, "metadata": metadata}, "Prefer: return=representation")
		require.Equal(t, 200, r.status, r.body)
		var answer struct {
			Replaced *int
			Message  string
		}
		r.json(t, &answer)
		require.NotNil(t, answer.Replaced)
		require.Equal(t, step.replaced, *answer.Replaced, step.ids)
		require.Equal(t, step.want, answer.Message)
	}
}

// The sentence of an update says what went for it, in the singular and in the plural.
func TestUpdateSaysWhatWasEvicted(t *testing.T) {
	s := start(t, nil, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "few", "config": object{"max_documents": 3}}, nil)
	for _, step := range []struct {
		documents int
		want      string
	}{
		{3, "3 documents stored in index few"},
		{1, "1 document stored in index few; the oldest document was deleted"},
		{2, "2 documents stored in index few; the 2 oldest documents were deleted"},
	} {
		var docs list
		for range step.documents {
			docs = append(docs, query("cats"))
		}
		r := s.send(t, "POST", "/indices/few/update", object{"documents": docs})
		require.Equal(t, 202, r.status, r.body)
		var said string
		r.json(t, &said)
		require.Equal(t, step.want, said)
	}
}
