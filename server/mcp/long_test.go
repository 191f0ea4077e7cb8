package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server/mcp"
)

// counted counts the bytes that a service answers.
type counted struct {
	http.Handler
	bytes atomic.Int64
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.Handler.ServeHTTP(&countedWriter{w, c}, r)
}

type countedWriter struct {
	http.ResponseWriter
	c *counted
}

func (w *countedWriter) Write(p []byte) (int, error) {
	w.c.bytes.Add(int64(len(p)))
	return w.ResponseWriter.Write(p)
}

// Of a document of many long passages tools read what they show, and not all of it.
func TestToolsReadWhatTheyShow(t *testing.T) {
	s := newService(t, true, nil)
	long := make([]string, 60)
	for i := range long {
		long[i] = fmt.Sprintf("owls hunt mice, page %d ", i) + strings.Repeat("x", 100_000)
	}
	var metadata, texts []any
	for i, text := range long {
		metadata = append(metadata, map[string]any{"_id": fmt.Sprintf("book#%d", i), "text": text, "_passage": map[string]any{"of": "book", "n": i, "start": i, "end": i + 1}})
		texts = append(texts, "owls hunt mice")
	}
	post(t, s, "/indices/notes/update_with_encoding", map[string]any{"documents": texts, "metadata": metadata}, http.StatusAccepted)
	service := &counted{Handler: s}
	c := connect(t, mcp.NewInProcess(service))
	for tool, args := range map[string]map[string]any{
		"get":     {"index": "notes", "ids": []string{"book"}},
		"similar": {"index": "notes", "id": "book", "condition": "year > 2000"},
		"list":    {},
	} {
		service.bytes.Store(0)
		require.NoError(t, call(t, c, tool, args, new(any)), tool)
		require.Less(t, service.bytes.Load(), int64(1<<20), tool)
	}
	service.bytes.Store(0)
	r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "plaid://notes/book"})
	require.NoError(t, err)
	require.Len(t, r.Contents, 1)
	require.Less(t, service.bytes.Load(), int64(1<<20))
}

// A resource is read in parts, each of which says where the next one is; together they are the
// document.
func TestResourcesGoOn(t *testing.T) {
	s := newService(t, true, nil)
	pages := make([]string, 250)
	for i := range pages {
		pages[i] = fmt.Sprintf("page %d: ", i) + strings.Repeat("owls ", i%40*20)
	}
	pages[7] = strings.Repeat("a long page; ", 20_000)
	var metadata, texts []any
	for i, text := range pages {
		metadata = append(metadata, map[string]any{"_id": fmt.Sprintf("a/b#%d", i), "text": text, "_passage": map[string]any{"of": "a/b", "n": i, "start": i, "end": i + 1}})
		texts = append(texts, "owls")
	}
	post(t, s, "/indices/notes/update_with_encoding", map[string]any{"documents": texts, "metadata": metadata}, http.StatusAccepted)
	c := connect(t, mcp.NewInProcess(s))
	read, uri, reads := make([]string, len(pages)), "plaid://notes/a%2Fb", 0
	for ; uri != ""; reads++ {
		r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		require.NoError(t, err, uri)
		bytes := 0
		uri = ""
		for i, content := range r.Contents {
			bytes += len(content.Text)
			var passage struct {
				Text    string
				Next    string          `json:"_next"`
				Passage struct{ N int } `json:"_passage"`
			}
			require.NoError(t, json.Unmarshal([]byte(content.Text), &passage), content.Text)
			read[passage.Passage.N] += passage.Text
			if passage.Next != "" {
				require.Equal(t, len(r.Contents)-1, i)
				uri = passage.Next
			}
		}
		require.Less(t, bytes, mcp.ResourceBytes+1000)
	}
	require.Equal(t, pages, read)
	require.Greater(t, reads, 5)
	for _, bad := range []string{"plaid://notes/a%2Fb?passage=250", "plaid://notes/a%2Fb?passage=x", "plaid://notes/a%2Fb?start=-1"} {
		_, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: bad})
		require.Error(t, err, bad)
	}
	r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "plaid://notes/dog"})
	require.NoError(t, err)
	require.NotContains(t, r.Contents[0].Text, "_next")
}

// An agent that sends calls and takes no answers has some of them answered, and no more.
func TestPipeIsBounded(t *testing.T) {
	var running, most atomic.Int64
	free := make(chan struct{})
	service := mcp.NewInProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		<-free
		_ = json.NewEncoder(w).Encode(map[string]any{"documents": []any{}})
	}))
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- mcp.New(service, "1").Run(context.Background(), in, out) }()
	const calls = 40
	go func() {
		send := func(text string) { _, _ = io.WriteString(toServer, text+"\n") }
		send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		for i := range calls {
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"get","arguments":{"index":"x","ids":["a"]}}}`, i+1))
		}
		_ = toServer.Close()
	}()
	answers := json.NewDecoder(fromServer)
	next := func() {
		var answer struct{ ID int }
		require.NoError(t, answers.Decode(&answer))
	}
	next()
	require.Eventually(t, func() bool { return running.Load() == 8 }, time.Minute, time.Millisecond)
	time.Sleep(20 * time.Millisecond) // in which more would begin
	close(free)
	for range calls {
		next()
	}
	require.NoError(t, <-ended)
	require.EqualValues(t, 8, most.Load())
}
