package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// opened is a model in the repository, one for all tests.
var opened = sync.OnceValues(func() (*encode.Encoder, error) {
	return encode.Open("../../docs/examples/quickstart/colbert-nano", &encode.Options{Threads: 1})
})

func encoder(t *testing.T) *encode.Encoder {
	e, err := opened()
	require.NoError(t, err)
	return e
}

// newService is a service with two indexes: notes of texts, and empty.
func newService(t *testing.T, encodes bool, o *server.Options) *server.Server {
	st, err := store.Open(t.Context(), t.TempDir(), &store.Options{Derive: store.DeriveKeywords(nil), Growth: collection.Growth{Flat: -1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close(context.Background())) })
	var with server.Options
	if o != nil {
		with = *o
	}
	if with.Agents == nil {
		with.Agents = agents
	}
	e := encoder(t)
	maker, err := server.New(st.Catalog(), e, nil)
	require.NoError(t, err)
	for _, name := range []string{"notes", "empty"} {
		post(t, maker, "/indices", map[string]any{"name": name}, http.StatusOK)
	}
	long := strings.Repeat("Nothing is said here. ", 100) + "The aardvark eats termites." + strings.Repeat(" And nothing there.", 100)
	post(t, maker, "/indices/notes/update_with_encoding", map[string]any{
		"documents": []string{"cats sleep by day", "dogs bark at night", "the aardvark eats termites"},
		"metadata": []any{
			map[string]any{"_id": "cat", "title": "Cats", "text": "cats sleep by day", "year": 2019},
			map[string]any{"_id": "dog", "title": "Dogs", "text": "dogs bark at night", "year": 2021, "tags": []any{"loud", "pet"}, "by": map[string]any{"name": "Ann"}},
			map[string]any{"_id": "a/b ü", "text": long, "year": 2022},
		},
	}, http.StatusAccepted)
	if encodes {
		s, err := server.New(st.Catalog(), e, &with)
		require.NoError(t, err)
		return s
	}
	s, err := server.New(st.Catalog(), nil, &with)
	require.NoError(t, err)
	return s
}

// agents answers at /mcp of a service.
func agents(service http.Handler) http.Handler {
	return mcp.New(mcp.NewInProcess(service), "1").Handler()
}

func post(t *testing.T, h http.Handler, path string, body any, status int) {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	r := httptest.NewRequest("POST", "http://localhost"+path, bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	r.Host = "localhost"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, status, w.Code, w.Body.String())
}

// connect is an agent's session with the tools of a service.
func connect(t *testing.T, service *mcp.Service) *sdk.ClientSession {
	ctx := t.Context()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	inside, outside := sdk.NewInMemoryTransports()
	session, err := mcp.New(service, "1").Connect(ctx, inside)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	c, err := client.Connect(ctx, outside, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// call calls a tool; the error is the tool's.
func call(t *testing.T, c *sdk.ClientSession, tool string, args map[string]any, out any) error {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	if r.IsError {
		require.NotEmpty(t, r.Content)
		return fmt.Errorf("%s", r.Content[0].(*sdk.TextContent).Text)
	}
	text, err := json.Marshal(r.StructuredContent)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, out))
	return nil
}

type hits struct {
	Hits []struct {
		ID, Title, Text, Field string
		Score                  float64
		Start, Length          int
		Fields                 map[string]any
	}
	Mode string
}

func (h *hits) ids() (ids []string) {
	for _, x := range h.Hits {
		ids = append(ids, x.ID)
	}
	return ids
}

func TestTools(t *testing.T) {
	s := newService(t, true, nil)
	elsewhere := httptest.NewServer(s)
	defer elsewhere.Close()
	at, err := mcp.NewRemote(elsewhere.URL, "")
	require.NoError(t, err)
	for name, service := range map[string]*mcp.Service{"in": mcp.NewInProcess(s), "at": at} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, service)
			var list struct {
				Indexes []struct {
					Name      string
					Documents int
					Fields    []string
				}
				Texts bool
			}
			require.NoError(t, call(t, c, "list", nil, &list))
			require.True(t, list.Texts)
			require.Len(t, list.Indexes, 2)
			require.Equal(t, "empty", list.Indexes[0].Name)
			require.Equal(t, 3, list.Indexes[1].Documents)
			require.Equal(t, []string{"by", "tags", "text", "title", "year"}, list.Indexes[1].Fields)

			var found hits
			require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "what do dogs do?", "k": 2}, &found))
			require.Equal(t, "vectors", found.Mode)
			require.Len(t, found.Hits, 2)
			require.Equal(t, "dog", found.Hits[0].ID)
			require.Equal(t, "Dogs", found.Hits[0].Title)
			require.Equal(t, "dogs bark at night", found.Hits[0].Text)
			require.EqualValues(t, 2021, found.Hits[0].Fields["year"])
			require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "dogs", "condition": "year = 2019"}, &found))
			require.Equal(t, []string{"cat"}, found.ids())
			require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "cats", "condition": "tags = 'pet' AND by.name = 'Ann'"}, &found))
			require.Equal(t, []string{"dog"}, found.ids())
			require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "aardvark", "mode": "keywords"}, &found))
			require.Equal(t, []string{"a/b ü"}, found.ids())
			require.Contains(t, found.Hits[0].Text, "aardvark", "the part that has the word, of a long text")
			require.LessOrEqual(t, len(found.Hits[0].Text), mcp.SnippetBytes)
			require.Positive(t, found.Hits[0].Start)
			require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "aardvark", "mode": "hybrid", "condition": "year > 2000"}, &found))
			require.Equal(t, "a/b ü", found.Hits[0].ID)

			var similar hits
			require.NoError(t, call(t, c, "similar", map[string]any{"index": "notes", "id": "dog", "condition": "year < 2022 OR year = 2022"}, &similar))
			require.ElementsMatch(t, []string{"cat", "a/b ü"}, similar.ids())

			var why struct {
				Stage   string
				Rank    int
				Matches []struct{ Word, Document string }
			}
			require.NoError(t, call(t, c, "explain", map[string]any{"index": "notes", "query": "dogs", "id": "dog"}, &why))
			require.Equal(t, "returned", why.Stage)
			require.Len(t, why.Matches, 1)
			require.Equal(t, "dogs", why.Matches[0].Document)

			resource, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "plaid://notes/a%2Fb%20%C3%BC"})
			require.NoError(t, err)
			require.Contains(t, resource.Contents[0].Text, "aardvark")
			for _, uri := range []string{"plaid://notes/none", "plaid://none/dog", "plaid://notes/", "plaid://notes/%2"} {
				_, err = c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
				require.Error(t, err, uri)
			}
		})
	}
}

// A long document is read in pieces that put together are the text.
func TestGetInPieces(t *testing.T) {
	s := newService(t, true, nil)
	text := strings.Repeat("äöü and so on; ", 4000)
	post(t, s, "/indices/notes/update_with_encoding", map[string]any{
		"documents": []string{"long"}, "metadata": []any{map[string]any{"_id": "long", "text": text, "list": strings.Fields(text)}},
	}, http.StatusAccepted)
	c := connect(t, mcp.NewInProcess(s))
	read, start, calls := "", 0, 0
	for {
		var got struct {
			Documents []struct {
				Fields map[string]any
				Next   int
			}
			Missing []string
		}
		require.NoError(t, call(t, c, "get", map[string]any{"index": "notes", "ids": []string{"long", "none"}, "start": start}, &got))
		require.Equal(t, []string{"none"}, got.Missing)
		require.Len(t, got.Documents, 1)
		require.Contains(t, got.Documents[0].Fields["list"], "left out")
		part := got.Documents[0].Fields["text"].(string)
		require.LessOrEqual(t, len(part), mcp.TextBytes)
		read += part
		calls++
		if start = got.Documents[0].Next; start == 0 {
			break
		}
	}
	require.Equal(t, text, read)
	require.Greater(t, calls, 3)
}

// An answer is bounded however many passages a document has, and says what to ask for next.
func TestGetManyPassages(t *testing.T) {
	s := newService(t, true, nil)
	const n = 500
	var texts []string
	var metadata []any
	for i := range n {
		texts = append(texts, "part of it")
		metadata = append(metadata, map[string]any{"_id": fmt.Sprintf("book#%d", i), "text": strings.Repeat("part of it ", 40),
			"_passage": map[string]any{"of": "book", "n": i, "start": i * 500, "end": i*500 + 440}})
	}
	post(t, s, "/indices/notes/update_with_encoding", map[string]any{"documents": texts, "metadata": metadata}, http.StatusAccepted)
	c := connect(t, mcp.NewInProcess(s))
	var got struct {
		Documents []struct{ ID string }
		NoRoom    []string `json:"no_room"`
		Left      int
	}
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "get", Arguments: map[string]any{"index": "notes", "ids": []string{"book"}}})
	require.NoError(t, err)
	text, err := json.Marshal(r.StructuredContent)
	require.NoError(t, err)
	require.Less(t, len(text), mcp.TextBytes+8<<10)
	require.NoError(t, json.Unmarshal(text, &got))
	shown := len(got.Documents)
	require.Greater(t, shown, 10)
	require.Equal(t, n-shown, got.Left)
	require.Len(t, got.NoRoom, mcp.MaxHits)
	require.Equal(t, fmt.Sprintf("book#%d", shown), got.NoRoom[0])
	require.NoError(t, call(t, c, "get", map[string]any{"index": "notes", "ids": got.NoRoom}, &got))
	require.Equal(t, got.Documents[0].ID, fmt.Sprintf("book#%d", shown))
	require.Len(t, got.Documents, mcp.MaxHits)
}

// What cannot be done is told to the agent, in words that say what to do.
func TestMistakes(t *testing.T) {
	c := connect(t, mcp.NewInProcess(newService(t, true, nil)))
	for _, x := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"search", map[string]any{"query": "x"}, `name one of ["empty" "notes"]`},
		{"search", map[string]any{"index": "none", "query": "x"}, "INDEX_NOT_FOUND); there are notes, empty"},
		{"get", map[string]any{"index": "note", "ids": []string{"dog"}}, "there are notes, empty"},
		{"similar", map[string]any{"index": "note", "id": "dog"}, "there are notes, empty"},
		{"explain", map[string]any{"index": "note", "id": "dog", "query": "x"}, "there are notes, empty"},
		{"search", map[string]any{"index": "empty", "query": "x"}, "has no documents yet (INDEX_NOT_FOUND)"},
		{"search", map[string]any{"index": "../x", "query": "x"}, "("},
		{"search", map[string]any{"index": "notes", "query": ""}, "query has 0 bytes"},
		{"search", map[string]any{"index": "notes", "query": strings.Repeat("x", mcp.MaxQuery+1)}, "8193 bytes"},
		{"search", map[string]any{"index": "notes", "query": "x", "k": 21}, "k is 21; 1 to 20"},
		{"search", map[string]any{"index": "notes", "query": "x", "k": -1}, "k is -1"},
		{"search", map[string]any{"index": "notes", "query": "x", "mode": "magic"}, "vectors, keywords and hybrid are possible"},
		{"search", map[string]any{"index": "notes", "query": "x", "condition": "year >"}, "condition"},
		{"search", map[string]any{"index": "notes", "query": "x", "condition": "nobody = 1"}, "nobody"},
		{"search", map[string]any{"index": "notes", "question": "x"}, "question"},
		{"get", map[string]any{"index": "notes", "ids": []string{}}, "0 ids"},
		{"get", map[string]any{"index": "notes", "ids": []string{"dog"}, "start": -1}, "start is -1"},
		{"similar", map[string]any{"index": "notes", "id": "none"}, "DOCUMENT_NOT_FOUND"},
		{"similar", map[string]any{"index": "notes", "id": "dog", "condition": "1 = 1) OR (1 = 1"}, "("},
		{"explain", map[string]any{"index": "notes", "id": "none", "query": "x"}, "DOCUMENT_NOT_FOUND"},
	} {
		err := call(t, c, x.tool, x.args, new(any))
		require.ErrorContains(t, err, x.want, "%s %v", x.tool, x.args)
	}
	_, err := mcp.NewRemote("ftp://x", "")
	require.ErrorContains(t, err, "no http://")
}

// Without a model questions are words, and are not asked by meaning.
func TestWithoutModel(t *testing.T) {
	c := connect(t, mcp.NewInProcess(newService(t, false, nil)))
	var found hits
	require.NoError(t, call(t, c, "search", map[string]any{"index": "notes", "query": "dogs"}, &found))
	require.Equal(t, "keywords", found.Mode)
	require.Equal(t, []string{"dog"}, found.ids())
	require.ErrorContains(t, call(t, c, "search", map[string]any{"index": "notes", "query": "dogs", "mode": "vectors"}, &found), "model")
}
