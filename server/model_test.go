package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

// An index keeps the first model that is named for its vectors, and refuses vectors and queries that name another.
func TestModelOfVectors(t *testing.T) {
	s := start(t, nil, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "pages"}, nil)
	add := func(id string, model any) object {
		body := object{"documents": list{object{"embeddings": list{list{1, 0}}}}, "metadata": list{object{"_id": id}}}
		if model != nil {
			body["model"] = model
		}
		return body
	}
	const update, search, explain = "/indices/pages/update", "/indices/pages/search", "/indices/pages/explain"
	own, other := object{"name": "pages-1"}, object{"name": "pages-2"}
	s.ok(t, 202, "POST", update, add("a", own), nil)
	var stats struct {
		Model struct{ Name, Fingerprint string }
	}
	s.ok(t, 200, "GET", "/indices/pages/stats", nil, &stats)
	require.Equal(t, "pages-1", stats.Model.Name)

	for _, model := range []any{nil, own, object{"name": "pages-1", "fingerprint": "f"}} {
		s.ok(t, 202, "POST", update, add("b", model), nil)
		query := object{"embeddings": list{list{1, 0}}}
		if model != nil {
			query["model"] = model
		}
		s.ok(t, 200, "POST", search, object{"queries": list{query}}, nil)
		s.ok(t, 200, "POST", explain, object{"query": query, "id": "a"}, nil)
	}
	query := object{"embeddings": list{list{1, 0}}, "model": other}
	for path, body := range map[string]object{
		update: add("c", other), search: {"queries": list{query}}, explain: {"query": query, "id": "a"},
	} {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", path, body)
		require.Contains(t, p.Message, `another model than those of the index: model "pages-2", the index has model "pages-1"`)
	}
	for _, bad := range []object{{}, {"name": "a\nb"}, {"weights": "x"}} {
		s.refused(t, 400, server.CodeBadRequest, "POST", update, add("c", bad))
		query["model"] = bad
		s.refused(t, 400, server.CodeBadRequest, "POST", search, object{"queries": list{query}})
	}
	s.ok(t, 200, "GET", "/indices/pages/stats", nil, &stats)
	require.Equal(t, "pages-1", stats.Model.Name)
}
