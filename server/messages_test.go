package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// What was wrong is said in the words of those who sent it, with what is possible instead.
func TestMessages(t *testing.T) {
	s := startPets(t)
	for _, x := range []struct {
		status       int
		code         server.Code
		method, path string
		body         any
		want         string
	}{
		{409, server.CodeIndexExists, "POST", "/indices", object{"name": "pets"}, `index exists: "pets"`},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": "../pets"}, `'/'; only A-Z a-z 0-9 . _ - are possible`},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": ".pets"}, "begins or ends with a dot"},
		{400, server.CodeBadRequest, "POST", "/indices", object{"name": "a b"}, `bad name of an index: "a b" has ' '`},
		{400, server.CodeBadRequest, "DELETE", "/indices/pets/documents", nil, `there is no body; want JSON such as {"`},
		{400, server.CodeBadRequest, "DELETE", "/indices/pets/documents", object{}, "a condition is needed, or document_ids, or ids"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search", nil, `there is no body; want JSON such as {"queries"`},
		{404, server.CodeImageNotFound, "GET", "/indices/pets/image?id=a", nil, "the document has no field image"},
		{400, server.CodeNotSupported, "GET", "/nodes", nil, "nodes exist in a cluster only"},
		{400, server.CodeBadRequest, "POST", "/indices/pets/search_with_encoding", object{"queries": list{"a", ""}}, "queries[1] is empty"},
		{400, server.CodeBadRequest, "POST", "/encode", object{"texts": list{"a", ""}, "input_type": "query"}, "texts[1] is empty"},
		{400, server.CodeBadRequest, "POST", "/rerank_with_encoding", object{"query": "", "documents": list{"x"}}, "query is empty"},
	} {
		p := s.refused(t, x.status, x.code, x.method, x.path, x.body)
		require.Contains(t, p.Message, x.want, "%s %s", x.method, x.path)
	}
	p := s.refused(t, 400, server.CodeBadRequest, "DELETE", "/indices/pets/documents", "", "Content-Type: application/json")
	require.Contains(t, p.Message, `there is no body; want JSON such as {"`)
	s.ok(t, 200, "POST", "/encode", "\ufeff"+`{"texts": ["a"], "input_type": "query"}`, nil)
	var out struct{ Deleted bool }
	s.ok(t, 200, "DELETE", "/indices/typo", nil, &out)
	require.False(t, out.Deleted)
	s.ok(t, 200, "DELETE", "/indices/pets", nil, &out)
	require.True(t, out.Deleted)
}
