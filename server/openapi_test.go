package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// contract is the description, and a compiler of the schemas in it.
type contract struct {
	doc      object
	compiler *jsonschema.Compiler
}

func readContract(t testing.TB, s *service) *contract {
	t.Helper()
	r := s.send(t, "GET", "/openapi.json", nil)
	require.Equal(t, 200, r.status)
	c := &contract{compiler: jsonschema.NewCompiler()}
	r.json(t, &c.doc)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(r.body))
	require.NoError(t, err)
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, c.compiler.AddResource("http://plaid.test/openapi.json", doc))
	return c
}

// at goes down a path of keys.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, ok := v.(object)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func pointer(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(k, "~", "~0"), "/", "~1"), "{", "%7B"))
	}
	return strings.ReplaceAll(b.String(), "}", "%7D")
}

// valid checks a JSON text against the schema at a path of the description.
func (c *contract) valid(text string, keys ...string) error {
	schema, err := c.compiler.Compile("http://plaid.test/openapi.json#" + pointer(keys...))
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// route finds the path of the description that a request is for.
func (c *contract) route(path string) string {
	path, _, _ = strings.Cut(path, "?")
	for _, exact := range []bool{true, false} {
		for pattern := range c.doc["paths"].(object) {
			if exact && pattern == path {
				return pattern
			}
			a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
			same := !exact && len(a) == len(b)
			for i := 0; same && i < len(a); i++ {
				same = strings.HasPrefix(a[i], "{") || a[i] == b[i]
			}
			if same {
				return pattern
			}
		}
	}
	return ""
}

// answers checks an answer against the description.
func (c *contract) answers(t testing.TB, method, path string, r *reply) {
	t.Helper()
	route := c.route(path)
	require.NotEmpty(t, route, path)
	keys := []string{"paths", route, strings.ToLower(method), "responses", fmt.Sprint(r.status)}
	response := at(c.doc, keys...)
	require.NotNil(t, response, "%s %s: status %d is not described: %s", method, path, r.status, r.body)
	if at(response, "content") == nil {
		require.Empty(t, r.body, path)
		return
	}
	media, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	require.NotNil(t, at(response, "content", media), "%s %s: %s is not described", method, path, media)
	if strings.HasSuffix(media, "json") {
		require.NoError(t, c.valid(r.body, append(keys, "content", media, "schema")...), "%s %s: %s", method, path, r.body)
	}
}

// The description has the routes that there are, each with what a reader needs, and the
// examples are what the schemas say.
func TestDescription(t *testing.T) {
	s := start(t, nil, nil)
	c := readContract(t, s)
	ids := map[string]bool{}
	described := map[string]bool{}
	for path, item := range c.doc["paths"].(object) {
		for method, op := range item.(object) {
			described[strings.ToUpper(method)+" "+path] = true
			id, _ := at(op, "operationId").(string)
			require.NotEmpty(t, id, path)
			require.False(t, ids[id], id)
			ids[id] = true
			require.NotEmpty(t, at(op, "summary"), id)
			require.NotNil(t, at(op, "responses"), id)
			for media, body := range orEmpty(at(op, "requestBody", "content")) {
				keys := []string{"paths", path, method, "requestBody", "content", media, "schema"}
				if media != "application/json" {
					continue
				}
				example, err := json.Marshal(at(body, "example"))
				require.NoError(t, err)
				require.NotEqual(t, "null", string(example), "%s has no example", id)
				require.NoError(t, c.valid(string(example), keys...), id)
			}
		}
	}
	var routes []string
	for _, r := range server.Routes(s.Server) {
		routes = append(routes, r)
		require.True(t, described[r], "%s is not described", r)
		delete(described, r)
	}
	require.Empty(t, described, "described, but not there")
	require.Greater(t, len(routes), 30)
	// Every code is described, and every problem is what its schema says.
	problems := at(c.doc, "x-problems")
	for _, c := range at(c.doc, "components", "schemas", "Problem", "properties", "code", "enum").(list) {
		require.NotNil(t, at(problems, c.(string)), c)
	}
}

// Whether a field that is not known is refused, the description says as the service does:
// at the top of each body, and in what is in it.
func TestDescriptionOfUnknownFields(t *testing.T) {
	s := startPets(t)
	c := readContract(t, s)
	foreign := 0
	check := func(method, path string, keys []string, body object) {
		t.Helper()
		text, err := json.Marshal(body)
		require.NoError(t, err)
		r := s.send(t, strings.ToUpper(method), strings.ReplaceAll(path, "{name}", "pets"), string(text))
		refused := r.status == 400 && strings.Contains(r.body, "unknown field")
		require.Equal(t, refused, c.valid(string(text), keys...) != nil, "%s: %s: %s", path, text, r.body)
		if !refused {
			foreign++
		}
	}
	for path, item := range c.doc["paths"].(object) {
		for method, op := range item.(object) {
			example, _ := at(op, "requestBody", "content", "application/json", "example").(object)
			if example == nil {
				continue
			}
			keys := []string{"paths", path, method, "requestBody", "content", "application/json", "schema"}
			with := maps.Clone(example)
			with["nosuch"] = 1
			check(method, path, keys, with)
			for field, value := range example {
				inner, isObject := value.(object)
				if items, ok := value.(list); ok {
					inner, isObject = items[0].(object)
				}
				if !isObject || field == "updates" || field == "metadata" { // what users name
					continue
				}
				with, in := maps.Clone(example), maps.Clone(inner)
				in["nosuch"] = 1
				if with[field] = any(in); value != nil {
					if _, ok := value.(list); ok {
						with[field] = list{in}
					}
				}
				check(method, path, keys, with)
			}
		}
	}
	require.Equal(t, 4, foreign, "/v1/embeddings, /v1/rerank, /v2/rerank and /mcp take fields of others")
	check("post", "/indices/{name}/search_with_encoding", []string{"paths", "/indices/{name}/search_with_encoding", "post", "requestBody", "content", "application/json", "schema"},
		object{"queries": list{object{"text": "cats", "nosuch": 1}}})
	require.NoError(t, c.valid(`{"queries": ["a", {"text": "cats", "subset": [1], "filter_condition": "year > ?", "filter_parameters": [1]}]}`,
		"paths", "/indices/{name}/search_with_encoding", "post", "requestBody", "content", "application/json", "schema"))
	// Clients of typescript-fetch send fields under two names where that is said.
	require.NotContains(t, s.send(t, "GET", "/openapi.json", nil).body, `"additionalProperties":false`)
	// Answers may get fields: a client that refuses those it does not know breaks.
	require.NoError(t, c.valid(`{"deleted": true, "name": "a", "later": 3}`, "components", "schemas", "DeletedAnswer"))
}

// Every route that takes a condition says what Prefer does with fields that no document has.
func TestDescriptionOfConditions(t *testing.T) {
	c := readContract(t, start(t, words{}, nil))
	checked := 0
	for path, item := range c.doc["paths"].(object) {
		for method, op := range item.(object) {
			ref, _ := at(op, "requestBody", "content", "application/json", "schema", "$ref").(string)
			fields := orEmpty(at(c.doc, "components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/"), "properties"))
			if fields["condition"] == nil && fields["filter_condition"] == nil {
				continue
			}
			checked++
			described := false
			params, _ := at(op, "parameters").(list)
			for _, p := range params {
				described = described || at(p, "name") == "Prefer" && strings.Contains(at(p, "description").(string), "unknown-fields=null")
			}
			require.True(t, described, "%s %s", method, path)
		}
	}
	require.Greater(t, checked, 8)
}

func orEmpty(v any) object {
	m, _ := v.(object)
	return m
}

// Every answer of the service, errors too, is as the description says. The requests are
// those of the other tests of the API in short.
func TestAnswersAreAsDescribed(t *testing.T) {
	s := start(t, words{}, nil)
	c := readContract(t, s)
	s.addPets(t)
	for _, q := range []struct {
		method, path string
		body         any
		headers      []string
	}{
		{"GET", "/health", nil, nil}, {"GET", "/", nil, nil}, {"GET", "/livez", nil, nil}, {"GET", "/readyz", nil, nil}, {"GET", "/metrics", nil, nil},
		{"GET", "/openapi.json", nil, nil},
		{"GET", "/indices", nil, nil}, {"POST", "/indices", object{"name": "x", "config": object{"nbits": 2, "seed": 5, "binary": false}}, nil},
		{"POST", "/indices", object{"name": "x"}, nil}, {"POST", "/indices", `{`, nil}, {"POST", "/indices", `{}`, []string{"Content-Type: text/plain"}},
		{"GET", "/indices/pets", nil, nil}, {"GET", "/indices/none", nil, nil}, {"GET", "/indices/pets/stats", nil, nil}, {"GET", "/indices/x/stats", nil, nil},
		{"PUT", "/indices/pets/config", object{"max_documents": 100}, nil}, {"PUT", "/indices/pets/config", object{"max_documents": 0}, nil},
		{"POST", "/indices/pets/update", object{"documents": list{query("new")}}, nil},
		{"POST", "/indices/pets/update", object{"documents": list{query("new")}}, []string{"Prefer: return=representation"}},
		{"POST", "/indices/pets/update", object{"documents": list{object{}}}, nil},
		{"POST", "/indices/none/update", object{"documents": list{query("new")}}, nil},
		{"POST", "/indices/pets/documents", object{"documents": list{query("new")}}, nil},
		{"POST", "/indices/pets/update_with_encoding", object{"documents": list{"new"}}, nil},
		{"DELETE", "/indices/pets/documents", object{"condition": "title = ?", "parameters": list{"birds"}}, nil},
		{"DELETE", "/indices/pets/documents", object{"ids": list{"x"}}, []string{"Prefer: return=representation"}},
		{"GET", "/indices/pets/documents?id=a&vectors=json", nil, nil}, {"GET", "/indices/pets/documents?id=a&vectors=base64", nil, nil}, {"GET", "/indices/pets/documents?id=q", nil, nil},
		{"POST", "/indices/pets/search", object{"queries": list{query("cats")}, "stats": true}, nil},
		{"POST", "/indices/pets/search", object{"queries": list{query("cats")}, "metadata": false}, nil},
		{"POST", "/indices/pets/search", object{}, nil},
		{"POST", "/indices/pets/search/filtered", object{"queries": list{query("cats")}, "filter_condition": "year > ?", "filter_parameters": list{0}}, nil},
		{"POST", "/indices/pets/search/filtered", object{"queries": list{query("cats")}, "filter_condition": "year >"}, nil},
		{"POST", "/indices/pets/search_with_encoding", object{"queries": list{"cats", object{"text": "x", "subset": list{1}}}}, nil},
		{"POST", "/indices/pets/search/filtered_with_encoding", object{"queries": list{"cats"}, "filter_condition": "year > ?", "filter_parameters": list{0}}, nil},
		{"POST", "/indices/pets/explain", object{"text": "cats", "id": "a", "similarities": true, "text_fields": list{"text"}}, nil},
		{"POST", "/indices/pets/recall", object{"queries": list{query("cats"), query("dogs bark")}, "params": object{"top_k": 2}}, nil},
		{"GET", "/indices/pets/metadata", nil, nil}, {"GET", "/indices/pets/metadata/count", nil, nil},
		{"POST", "/indices/pets/metadata/check", object{"document_ids": list{0, 99}}, nil},
		{"POST", "/indices/pets/metadata/query", object{"condition": "year > ?", "parameters": list{0}}, nil},
		{"POST", "/indices/pets/metadata/get", object{"document_ids": list{0}}, nil},
		{"POST", "/indices/pets/ids", object{"condition": "year > ?", "parameters": list{0}, "limit": 1}, nil},
		{"POST", "/indices/pets/metadata/update", object{"condition": "year > ?", "parameters": list{0}, "updates": object{"seen": true}}, nil},
		{"POST", "/indices/pets/facets", object{"fields": list{"title", "year"}, "values": 1, "subset": list{0}}, nil},
		{"POST", "/indices/pets/facets", object{"fields": list{"yaer"}}, nil},
		{"POST", "/encode", object{"texts": list{"a"}, "input_type": "query"}, nil},
		{"POST", "/encode", object{"texts": list{"a"}, "input_type": "document"}, []string{"X-Embeddings-Format: base64"}},
		{"POST", "/v1/embeddings", object{"input": list{"a"}}, nil},
		{"POST", "/rerank", object{"query": matrix("cats"), "documents": list{query("cats")}}, nil},
		{"POST", "/rerank_with_encoding", object{"query": "cats", "documents": list{"dogs"}}, nil},
		{"POST", "/v1/rerank", object{"query": "cats", "documents": list{"dogs", object{"text": "cats"}}, "return_documents": true}, nil},
		{"POST", "/v2/rerank", object{"query": "cats", "documents": list{"dogs"}}, nil},
		{"POST", "/indices/pets/verify", nil, nil}, {"POST", "/indices/pets/retrain", nil, nil}, {"POST", "/indices/pets/compact", nil, nil}, {"GET", "/indices/pets/backup", nil, nil},
		{"PUT", "/indices/new/backup", "no index", []string{"Content-Type: application/octet-stream"}},
		{"PUT", "/indices/new/import", "no archive", []string{"Content-Type: application/x-tar"}},
		{"DELETE", "/indices/x", nil, nil}, {"DELETE", "/indices/never", nil, nil},
		{"GET", "/indices/pets/documents?id=a&id=b&limit=1&metadata_bytes=0", nil, nil}, {"GET", "/indices/pets/documents?id=a&limit=-1", nil, nil},
		{"POST", "/indices/pets/metadata/get", object{"values": false}, nil},
		{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{acceptsBoth}}, {"POST", "/mcp", `{}`, nil}, {"POST", "/mcp", `[]`, []string{acceptsBoth}},
		{"POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, []string{acceptsBoth}},
	} {
		r := s.send(t, q.method, q.path, q.body, q.headers...)
		c.answers(t, q.method, q.path, r)
	}
}

// acceptsBoth is the header that the protocol of agents asks for.
const acceptsBoth = "Accept: application/json, text/event-stream"

// A client that knows nothing but the description can be strict: the answers have no
// fields beyond it.
func TestAnswersHaveNoOtherFields(t *testing.T) {
	s := startPets(t)
	c := readContract(t, s)
	for path, schema := range map[string]string{"/health": "HealthAnswer", "/indices/pets": "InfoAnswer", "/indices/pets/stats": "StatsAnswer"} {
		var v object
		s.ok(t, 200, "GET", path, nil, &v)
		known := at(c.doc, "components", "schemas", schema, "properties").(object)
		for name := range v {
			require.Contains(t, known, name, path)
		}
	}
	var b bytes.Buffer
	require.NoError(t, json.Indent(&b, []byte(s.send(t, "GET", "/openapi.json", nil).body), "", " "))
	require.NotContains(t, b.String(), "plaid-ir/plaid") // names of types of the program
}
