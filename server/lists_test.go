package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/server"
)

// Every route with a condition finds what is in lists and nested fields, and facets count it.
func TestListsAndNestedFields(t *testing.T) {
	s := startPets(t)
	var docs, metadata list
	for id, m := range conditiontest.ListDocs {
		o := object{}
		require.NoError(t, json.Unmarshal(m, &o))
		o["_id"] = id
		docs, metadata = append(docs, query(id)), append(metadata, o)
	}
	s.ok(t, http.StatusAccepted, "POST", "/indices/pets/update", object{"documents": docs, "metadata": metadata}, nil)
	found := func(body object) []string {
		body["queries"], body["params"] = list{query("cats")}, object{"top_k": 100}
		ids := []string{}
		for _, m := range s.search(t, "", body).Results[0].Metadata {
			ids = append(ids, m["_id"].(string))
		}
		slices.Sort(ids)
		return ids
	}
	for text, want := range conditiontest.ListCases {
		require.Equal(t, want, found(object{"filter_condition": text}), text)
		var ids struct {
			Documents []uint32 `json:"document_ids"`
		}
		s.ok(t, http.StatusOK, "POST", "/indices/pets/metadata/query", object{"condition": text}, &ids)
		require.Len(t, ids.Documents, len(want), text)
		var all struct{ Metadata []object }
		s.ok(t, http.StatusOK, "POST", "/indices/pets/metadata/get", object{"condition": text}, &all)
		require.Len(t, all.Metadata, len(want), text)
	}
	for field, want := range conditiontest.ListFacets {
		var counted struct {
			Facets []struct {
				Docs   int
				Values []struct {
					Value any
					Docs  uint64
				}
			}
		}
		s.ok(t, http.StatusOK, "POST", "/indices/pets/facets", object{"fields": list{field}, "filter_condition": "list = TRUE"}, &counted)
		got := map[string]uint64{}
		for _, v := range counted.Facets[0].Values {
			got[string(jsonOf(t, v.Value))] = v.Docs
		}
		require.Equal(t, want, got, field)
		require.Equal(t, len(docs), counted.Facets[0].Docs)
	}
	p := s.refused(t, http.StatusBadRequest, server.CodeBadRequest, "POST", "/indices/pets/metadata/update",
		object{"condition": "tags = 'big'", "updates": object{"author.name": "Cy"}})
	require.Contains(t, p.Message, `"author.name" is in "author"`)
	var updated struct{ Updated int }
	s.ok(t, http.StatusOK, "POST", "/indices/pets/metadata/update", object{"condition": "tags = 'red'", "updates": object{"tags": list{"green", "old"}}}, &updated)
	require.Equal(t, 3, updated.Updated)
	s.ok(t, http.StatusAccepted, "DELETE", "/indices/pets/documents", object{"condition": "tags IN ('green')"}, nil)
	require.Equal(t, []string{"a", "b", "c", "l3"}, found(object{}))
}
