package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// addBook adds a document of passages about birds.
func addBook(t *testing.T, s http.Handler, id string, texts ...string) {
	t.Helper()
	var metadata []any
	at := 0
	for i, text := range texts {
		metadata = append(metadata, map[string]any{"_id": fmt.Sprintf("%s#%d", id, i), "title": id, "text": text, "shelf": 7,
			"_passage": map[string]any{"of": id, "n": i, "start": at, "end": at + len(text)}})
		at += len(text) + 1
	}
	post(t, s, "/indices/notes/update_with_encoding", map[string]any{"documents": texts, "metadata": metadata}, http.StatusAccepted)
}

// A document of passages can be named, or one of its passages: what is similar is others.
func TestSimilarPassages(t *testing.T) {
	s := newService(t, true, nil)
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("owls hunt mice at night, page %d", i)
	}
	addBook(t, s, "owls", many...)
	addBook(t, s, "dogs", "dogs bark at night", "dogs sleep by day")
	c := connect(t, mcp.NewInProcess(s))
	var found hits
	require.NoError(t, call(t, c, "similar", map[string]any{"index": "notes", "id": "dogs"}, &found))
	require.ElementsMatch(t, []string{"dog", "cat", "owls", "a/b ü"}, found.ids(), "each document once, and not itself")
	require.Equal(t, "dog", found.Hits[0].ID)
	require.NoError(t, call(t, c, "similar", map[string]any{"index": "notes", "id": "owls", "k": 1}, &found))
	require.Len(t, found.Hits, 1)
	require.NotEqual(t, "owls", found.Hits[0].ID)
	require.NoError(t, call(t, c, "similar", map[string]any{"index": "notes", "id": "dogs#0", "condition": "shelf = 7"}, &found))
	require.Equal(t, []string{"owls"}, found.ids(), "nor a passage of its own document")
	require.ErrorContains(t, call(t, c, "similar", map[string]any{"index": "notes", "id": "dogs#9"}, &found), "DOCUMENT_NOT_FOUND")
}

// An agent hears that its question is longer than the model reads.
func TestSearchOfLongQuestion(t *testing.T) {
	c := connect(t, mcp.NewInProcess(newService(t, true, nil)))
	for query, cut := range map[string]bool{"when do cats sleep?": false, strings.Repeat("when do cats sleep? ", 20): true} {
		for _, mode := range []string{"vectors", "hybrid", "keywords"} {
			var found struct {
				Hits []struct{ ID string }
				Note string
			}
			require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": query, "mode": mode}, &found))
			require.NotEmpty(t, found.Hits, mode)
			if !cut || mode == "keywords" {
				require.Empty(t, found.Note, mode)
				continue
			}
			require.Regexp(t, `^the question was cut at the query length: its last \d+ tokens took no part`, found.Note, mode)
		}
	}
}

// A search finds documents, each with its best passage, and takes documents as examples.
func TestSearchGroupAndExamples(t *testing.T) {
	s := newService(t, true, nil)
	addBook(t, s, "zoo", "penguins swim in cold water", "parrots talk all day", "the keeper eats soup")
	c := connect(t, mcp.NewInProcess(s))
	for _, mode := range []string{"vectors", "keywords", "hybrid"} {
		var found struct {
			Hits []struct {
				ID, Passage, Text string
				Fields            map[string]any
			}
		}
		require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "parrots talk", "mode": mode, "group": true}, &found))
		require.Equal(t, "zoo", found.Hits[0].ID, mode)
		if mode != "hybrid" { // there it is any that both have found
			require.Equal(t, "zoo#1", found.Hits[0].Passage, mode)
			require.Equal(t, "parrots talk all day", found.Hits[0].Text, mode)
		}
		require.EqualValues(t, 7, found.Hits[0].Fields["shelf"])
		for _, hit := range found.Hits[1:] {
			require.NotEqual(t, "zoo", hit.ID, mode)
		}
	}
	text, err := os.ReadFile("../ui/sample.jsonl")
	require.NoError(t, err)
	post(t, s, "/indices", map[string]any{"name": "sample"}, http.StatusOK)
	var texts, metadata []any
	for line := range strings.Lines(string(text)) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		texts, metadata = append(texts, fmt.Sprint(m["title"], " ", m["text"])), append(metadata, m)
	}
	post(t, s, "/indices/sample/update_with_encoding", map[string]any{"documents": texts, "metadata": metadata}, http.StatusAccepted)
	scores := func(args map[string]any) map[string]float64 {
		var found hits
		args["index"], args["query"], args["k"] = "sample", "an animal that hunts", 20
		require.NoError(t, call(t, c, "search", args, &found))
		by := map[string]float64{}
		for _, hit := range found.Hits {
			by[hit.ID] = hit.Score
		}
		return by
	}
	plain, liked := scores(map[string]any{}), scores(map[string]any{"like": []string{"tea"}})
	require.Greater(t, liked["tea"]/liked["owl"], plain["tea"]/plain["owl"])
	disliked := scores(map[string]any{"like": []string{"tea"}, "unlike": []string{"owl"}})
	require.Less(t, disliked["owl"]/disliked["tea"], liked["owl"]/liked["tea"])
	err = call(t, c, "search", map[string]any{"index": "notes", "query": "x", "like": []string{"none"}}, new(any))
	require.ErrorContains(t, err, "none")

	var why struct{ Passage, Stage string }
	require.NoError(t, call(t, c, "explain", map[string]any{"index": "notes", "query": "parrots talk", "id": "zoo"}, &why))
	require.Equal(t, "zoo#1", why.Passage)
	require.Equal(t, "returned", why.Stage)
}

// The part of a long text that is shown is the one that the model has found, though it has
// other words than the question.
func TestSearchShowsWhatWasFound(t *testing.T) {
	s := newService(t, true, nil)
	text := strings.Repeat("It is so, and so it was. ", 32) + "The dogs bark loudly."
	post(t, s, "/indices/notes/update_with_encoding", map[string]any{"documents": []string{text, text},
		"metadata": []any{map[string]any{"_id": "long", "text": text}, map[string]any{"_id": "part#0", "text": text, "_passage": map[string]any{"of": "part", "n": 0, "start": 0, "end": len(text)}}}},
		http.StatusAccepted)
	c := connect(t, mcp.NewInProcess(s))
	for id, group := range map[string]bool{"long": false, "part#0": true} {
		var found hits
		require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "barking dog", "condition": "_id = '" + id + "'", "group": group}, &found))
		require.Len(t, found.Hits, 1)
		hit := found.Hits[0]
		require.Equal(t, text[hit.Start:hit.Start+len(hit.Text)], hit.Text)
		require.LessOrEqual(t, len(hit.Text), mcp.SnippetBytes)
		require.Contains(t, hit.Text, "dogs bark")
	}
}

// An answer keeps to the tokens that are asked for, and says what it leaves out.
func TestMaxTokens(t *testing.T) {
	s := newService(t, true, nil)
	text := strings.Repeat("dogs bark at night and so on; ", 400)
	for i := range 20 {
		post(t, s, "/indices/notes/update_with_encoding", map[string]any{"documents": []string{"dogs bark at night"},
			"metadata": []any{map[string]any{"_id": fmt.Sprint("long", i), "text": text, "path": "x.md", "digest": "d", "root": "/home/x"}}}, http.StatusAccepted)
	}
	c := connect(t, mcp.NewInProcess(s))
	size := func(tool string, args map[string]any) (bytes int, answer struct {
		Hits []struct{ Fields map[string]any }
		Left int
	}) {
		args["index"] = "notes"
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		require.NoError(t, err)
		require.False(t, r.IsError)
		text, err := json.Marshal(r.StructuredContent)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &answer))
		return len(text), answer
	}
	for tool, argument := range map[string]string{"search": "query", "similar": "id"} {
		whole, all := size(tool, map[string]any{argument: "dog", "k": 20})
		require.Len(t, all.Hits, 20)
		require.Greater(t, whole, 20*300)
		require.Zero(t, all.Left)
		for _, hit := range all.Hits {
			require.NotContains(t, hit.Fields, "digest")
			require.NotContains(t, hit.Fields, "root")
		}
		for _, tokens := range []int{1, 300, 1000} {
			n, some := size(tool, map[string]any{argument: "dog", "k": 20, "max_tokens": tokens})
			require.Less(t, n, max(tokens*3, 400)+100, tokens)
			require.Equal(t, 20, len(some.Hits)+some.Left)
			require.NotEmpty(t, some.Hits)
		}
	}
	n, _ := size("get", map[string]any{"ids": []string{"long1", "long2"}, "max_tokens": 200})
	require.Less(t, n, 1200)
	require.ErrorContains(t, call(t, c, "search", map[string]any{"index": "notes", "query": "x", "max_tokens": -1}, new(any)), "max_tokens is -1")
}

// An index that is damaged is listed as such, and the others are as they are.
func TestListDamaged(t *testing.T) {
	dir := t.TempDir()
	e := encoder(t)
	open := func() (*store.Store, *server.Server) {
		st, err := store.Open(t.Context(), dir, nil)
		require.NoError(t, err)
		s, err := server.New(st.Catalog(), e, nil)
		require.NoError(t, err)
		return st, s
	}
	st, s := open()
	for _, name := range []string{"bad", "empty", "notes"} {
		post(t, s, "/indices", map[string]any{"name": name}, http.StatusOK)
	}
	addBook(t, s, "zoo", "penguins swim", "parrots talk")
	require.NoError(t, st.Close(context.Background()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad", "index.plaid"), []byte(strings.Repeat("no index", 2000)), 0o666))
	st, s = open()
	t.Cleanup(func() { require.NoError(t, st.Close(context.Background())) })
	var asked atomic.Int64
	c := connect(t, mcp.NewInProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		s.ServeHTTP(w, r)
	})))
	var list struct {
		Indexes []struct {
			Name                string
			Documents, Passages int
			Fields              []string
			Error               string
		}
	}
	require.NoError(t, call(t, c, "list", nil, &list))
	require.Len(t, list.Indexes, 3)
	require.Contains(t, list.Indexes[0].Error, "damaged")
	require.Equal(t, "empty", list.Indexes[1].Name)
	require.Empty(t, list.Indexes[1].Error)
	require.Equal(t, []int{1, 2}, []int{list.Indexes[2].Documents, list.Indexes[2].Passages})
	require.Contains(t, list.Indexes[2].Fields, "shelf")
	require.EqualValues(t, 2+3, asked.Load(), "one request an index, and two")
}

// Calls make as many requests as docs/agents.md says.
func TestRequests(t *testing.T) {
	s := newService(t, true, nil)
	var asked atomic.Int64
	c := connect(t, mcp.NewInProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		s.ServeHTTP(w, r)
	})))
	for _, x := range []struct {
		tool string
		args map[string]any
		want int64
	}{
		{"search", map[string]any{"query": "dogs", "mode": "vectors"}, 1},
		{"search", map[string]any{"query": "dogs"}, 2},
		{"get", map[string]any{"ids": []string{"dog", "cat"}}, 2},
		{"similar", map[string]any{"id": "dog"}, 3},
		{"explain", map[string]any{"id": "dog", "query": "dogs"}, 1},
		{"list", map[string]any{}, 2 + 2},
	} {
		asked.Store(0)
		if x.tool != "list" {
			x.args["index"] = "notes"
		}
		require.NoError(t, call(t, c, x.tool, x.args, new(any)))
		require.Equal(t, x.want, asked.Load(), x.tool)
	}
}

// Agents read code as it is, and not as it would stand in HTML, and of many indexes of many
// fields no more than some.
func TestAnswersAreShort(t *testing.T) {
	const code = "if a < b && c > d {"
	c := connect(t, mcp.NewInProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case r.URL.Path == "/indices":
			var names []string
			for i := range 150 {
				names = append(names, fmt.Sprint("index", i))
			}
			answer = names
		case r.URL.Path == "/health":
			answer = map[string]any{"model": map[string]any{}, "indices": []any{}}
		case strings.HasSuffix(r.URL.Path, "/metadata/get"):
			m := map[string]any{}
			for i := range 200 {
				m[fmt.Sprintf("column%03d", i)] = i
			}
			answer = map[string]any{"metadata": []any{m}}
		case strings.HasSuffix(r.URL.Path, "/documents"):
			answer = map[string]any{"documents": []any{map[string]any{"metadata": map[string]any{"_id": "a", "text": code}}}}
		default:
			answer = map[string]any{"num_documents": 1}
		}
		require.NoError(t, json.NewEncoder(w).Encode(answer))
	})))
	textOf := func(tool string, args map[string]any) string {
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		require.NoError(t, err)
		require.False(t, r.IsError)
		require.Len(t, r.Content, 1)
		own, err := json.Marshal(r.StructuredContent)
		require.NoError(t, err)
		text := r.Content[0].(*sdk.TextContent).Text
		require.JSONEq(t, string(own), text)
		return text
	}
	require.Contains(t, textOf("get", map[string]any{"index": "x", "ids": []string{"a"}}), code)
	var list struct {
		Indexes []struct {
			Fields []string
			Left   int `json:"fields_left"`
		}
		Left int
	}
	text := textOf("list", map[string]any{})
	require.Less(t, len(text), 50<<10)
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	require.Len(t, list.Indexes, 100)
	require.Equal(t, 50, list.Left)
	for _, x := range list.Indexes {
		require.NotEmpty(t, x.Fields)
		require.Equal(t, 200, len(x.Fields)+x.Left)
	}
}

// What an agent was told of may be evicted before it asks again: it is told that the document is
// gone, by each tool, and finds the others.
func TestEvictedBetweenCalls(t *testing.T) {
	s := newService(t, true, nil)
	c := connect(t, mcp.NewInProcess(s))
	var found hits
	require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "cats sleep"}, &found))
	require.Contains(t, found.ids(), "cat")
	addBook(t, s, "zoo", "penguins swim in cold water", "parrots talk all day")
	limit := httptest.NewRequest("PUT", "http://localhost/indices/notes/config", strings.NewReader(`{"max_documents": 3}`))
	limit.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, limit)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	addBook(t, s, "owls", "owls hunt at night", "owls sleep by day")
	for tool, args := range map[string]map[string]any{
		"similar": {"id": "cat"}, "explain": {"id": "cat", "query": "cats sleep"},
		"search": {"query": "cats sleep", "like": []string{"cat"}},
	} {
		args["index"] = "notes"
		require.ErrorContains(t, call(t, c, tool, args, new(any)), "cat", tool)
	}
	var got struct {
		Documents []struct{ ID string }
		Missing   []string
	}
	require.NoError(t, call(t, c, "get", map[string]any{"index": "notes", "ids": []string{"cat", "zoo#0"}}, &got))
	require.Equal(t, []string{"cat"}, got.Missing)
	require.Len(t, got.Documents, 1)
	_, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "plaid://notes/cat"})
	require.Error(t, err)
	require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "cats sleep", "group": true}, &found))
	require.ElementsMatch(t, []string{"a/b ü", "zoo", "owls"}, found.ids())
}

// A search goes on where the last one ended, and leaves out what scores less than is wanted.
func TestSearchPages(t *testing.T) {
	c := connect(t, mcp.NewInProcess(newService(t, true, nil)))
	search := func(more map[string]any) (found hits) {
		args := map[string]any{"index": "notes", "query": "dogs bark"}
		for name, value := range more {
			args[name] = value
		}
		require.NoError(t, call(t, c, "search", args, &found))
		return found
	}
	for _, mode := range []string{"vectors", "hybrid"} {
		all := search(map[string]any{"mode": mode})
		var ids []string
		for i := range 4 {
			ids = append(ids, func() []string { page := search(map[string]any{"mode": mode, "k": 1, "offset": i}); return page.ids() }()...)
		}
		require.Equal(t, all.ids(), ids)
		best := search(map[string]any{"mode": mode, "min_score": all.Hits[0].Score})
		require.Equal(t, all.ids()[:1], best.ids())
	}
	require.ErrorContains(t, call(t, c, "search", map[string]any{"index": "notes", "query": "x", "offset": -1}, new(any)), "offset is -1")
}
