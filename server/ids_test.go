package server_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

type idPage struct {
	IDs  []string
	Next uint64
}

// idsOf reads all pages of a listing; between is called before each but the first.
func (s *service) idsOf(t *testing.T, index string, ask object, between func(page int)) (all []string) {
	t.Helper()
	for page := 0; ; page++ {
		var out idPage
		s.ok(t, 200, "POST", "/indices/"+index+"/ids", ask, &out)
		all = append(all, out.IDs...)
		if out.Next == 0 {
			return all
		}
		if between != nil {
			between(page)
		}
		ask["from"] = out.Next
	}
}

// Pages of ids are together all documents, each once, in the order in which they were added, under a
// condition too; passages count as their document, wherever a page ends.
func TestIDsInPages(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "many"}, nil)
	s.refused(t, 404, server.CodeIndexNotFound, "POST", "/indices/many/ids", object{})
	var want, texts, metadata list
	for i := range 40 {
		id := fmt.Sprintf("d%02d", i)
		text := "cats sleep"
		if i%5 == 0 {
			text = "cats sleep all day and dogs bark at night when strangers pass"
		}
		want, texts, metadata = append(want, id), append(texts, text), append(metadata, object{"_id": id, "n": i})
	}
	s.ok(t, 202, "POST", "/indices/many/update_with_encoding", object{
		"documents": texts, "metadata": metadata, "window": 3, "text_field": "text"}, nil)
	for _, limit := range []int{1, 2, 7, 39, 40, 41, 100_000} {
		got := s.idsOf(t, "many", object{"limit": limit}, nil)
		require.Equal(t, want, asList(got), limit)
	}
	require.Equal(t, want, asList(s.idsOf(t, "many", object{}, nil)))
	got := s.idsOf(t, "many", object{"condition": "n >= ? AND n < 13", "parameters": list{9}, "limit": 2}, nil)
	require.Equal(t, []string{"d09", "d10", "d11", "d12"}, got)
	for _, no := range []object{{"limit": 0}, {"limit": 100_001}, {"parameters": list{1}}, {"condition": "n >"}, {"from": -1}} {
		require.Equal(t, 400, s.send(t, "POST", "/indices/many/ids", no).status, no)
	}
}

// While documents are replaced, deleted and added, no document that stays is missing from the pages.
func TestIDsWhileDocumentsChange(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "many"}, nil)
	put := func(ids ...string) {
		body := object{"documents": list{}, "metadata": list{}}
		for _, id := range ids {
			body["documents"] = append(body["documents"].(list), query("cats"))
			body["metadata"] = append(body["metadata"].(list), object{"_id": id})
		}
		s.ok(t, 202, "POST", "/indices/many/update", body, nil)
	}
	var first []string
	for i := range 20 {
		first = append(first, fmt.Sprintf("d%02d", i))
	}
	put(first...)
	got := s.idsOf(t, "many", object{"limit": 4}, func(page int) {
		if page < 4 { // one that came already, one that did not, a new one, and one less
			put(first[page], first[19-page], fmt.Sprintf("new%d", page))
			s.ok(t, 202, "DELETE", "/indices/many/documents", object{"ids": list{first[10+page]}}, nil)
		}
	})
	for i, id := range first {
		require.True(t, 10 <= i && i < 14 || slices.Contains(got, id), id)
	}
	var unique []string
	s.ok(t, 200, "POST", "/indices/many/compact", nil, nil)
	for _, id := range s.idsOf(t, "many", object{"limit": 5}, nil) {
		require.NotContains(t, unique, id)
		unique = append(unique, id)
	}
	require.Len(t, unique, 20)
}

func asList(texts []string) (all list) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

// Compaction gives the space of deleted documents back, and searches find what they found.
func TestCompactByRequest(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "many"}, nil)
	s.refused(t, 404, server.CodeIndexNotFound, "POST", "/indices/many/compact", nil)
	var docs, metadata list
	for i := range 400 {
		docs = append(docs, query("cats sleep all day and dogs bark"))
		metadata = append(metadata, object{"_id": fmt.Sprint(i), "text": fmt.Sprintf("number %d of many", i)})
	}
	s.ok(t, 202, "POST", "/indices/many/update", object{"documents": docs, "metadata": metadata}, nil)
	s.ok(t, 202, "DELETE", "/indices/many/documents", object{"condition": "_id NOT IN ('7', '300')"}, nil)
	before := s.searchIn(t, "many", object{"queries": list{query("cats")}})
	var out struct {
		Name   string
		Before int64 `json:"bytes_before"`
		After  int64 `json:"bytes_after"`
	}
	s.ok(t, 200, "POST", "/indices/many/compact", nil, &out)
	require.Equal(t, "many", out.Name)
	require.Less(t, out.After, out.Before)
	require.Equal(t, before, s.searchIn(t, "many", object{"queries": list{query("cats")}}))
	require.Equal(t, []string{"7", "300"}, s.idsOf(t, "many", object{}, nil))
}

// The vectors of an update are pooled as those of a build are; the grid of a page goes with its cells.
func TestUpdatePools(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "pages"}, nil)
	page := func(tokens int) list { // in pairs of rows that are alike
		var rows list
		for i := range tokens {
			row := make(list, wordDim)
			for j := range row {
				row[j] = 0
			}
			row[i%4/2+2*(i/8)] = 3
			rows = append(rows, row)
		}
		return rows
	}
	put := func(n any, by string, fields object, tokens int) object {
		fields["_id"] = "p"
		body := object{"documents": list{object{"embeddings": page(tokens)}}, "metadata": list{fields}, "pool_factor": n}
		if by != "" {
			body["pool_by"] = by
		}
		return body
	}
	var stored struct {
		Documents []struct {
			Metadata   json.RawMessage
			Embeddings [][]float32
		}
	}
	for _, c := range []struct {
		n    int
		by   string
		want int
		grid string
	}{{1, "", 16, `[4, 4]`}, {4, "", 4, ""}, {4, "similar", 4, ""}, {4, "tiles", 4, "[2,2]"}, {3, "neighbours", 6, ""}} {
		s.ok(t, 202, "POST", "/indices/pages/update", put(c.n, c.by, object{"image": "a.png", "grid": list{4, 4}}, 16), nil)
		s.ok(t, 200, "GET", "/indices/pages/documents?id=p&vectors=json", nil, &stored)
		require.Len(t, stored.Documents[0].Embeddings, c.want, c)
		var fields struct{ Grid json.RawMessage }
		require.NoError(t, json.Unmarshal(stored.Documents[0].Metadata, &fields))
		if c.grid == "" {
			require.Empty(t, fields.Grid, c)
		} else {
			require.JSONEq(t, c.grid, string(fields.Grid), c)
		}
	}
	s.ok(t, 202, "POST", "/indices/pages/update", put(2, "", object{}, 5), nil)
	s.ok(t, 200, "GET", "/indices/pages/documents?id=p&vectors=json", nil, &stored)
	require.Len(t, stored.Documents[0].Embeddings, 3)
	s.ok(t, 202, "POST", "/indices/pages/update", object{"documents": list{object{"embeddings": list{}}},
		"metadata": list{object{"_id": "none"}}, "pool_factor": 4, "pool_by": "tiles"}, nil)
	for _, no := range []object{
		put(0, "", object{}, 4), put(-1, "", object{}, 4), put(4, "squares", object{}, 4), put(5, "tiles", object{}, 4),
		put(1, "tiles", object{}, 4), put(4, "tiles", object{}, 4), put(4, "neighbours", object{"image": "a"}, 4),
		put(4, "tiles", object{"image": "a", "grid": list{4, 4}}, 15), {"documents": list{query("a")}, "pool_by": "tiles"},
	} {
		s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pages/update", no)
	}
}

// A message shows the beginning of an id, however long that is.
func TestMessagesShortenIDs(t *testing.T) {
	s := startPets(t)
	long := strings.Repeat("é", 50_000)
	for _, ask := range []struct {
		status       int
		method, path string
		body         any
	}{
		{400, "POST", "/indices/pets/update", object{"documents": list{query("a")}, "metadata": list{object{"_id": long}}}},
		{400, "POST", "/indices/pets/update_with_encoding", object{"documents": list{"a"}, "metadata": list{object{"_id": long}}}},
		{404, "GET", "/indices/pets/documents?id=" + url.QueryEscape(long[:4000]), nil},
		{404, "POST", "/indices/pets/explain", object{"text": "cats", "id": long}},
		{404, "POST", "/indices/pets/search", object{"queries": list{query("a")}, "feedback": object{"like": list{long}}}},
	} {
		r := s.send(t, ask.method, ask.path, ask.body)
		require.Equal(t, ask.status, r.status, "%s %.300s", ask.path, r.body)
		var p server.Problem
		r.json(t, &p)
		require.Less(t, len(p.Message), 600, "%.100s", ask.path)
	}
}
