package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// lastByte is a body that says when its end was read.
type lastByte struct {
	io.Reader
	read func()
}

func (b *lastByte) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF && b.read != nil {
		b.read()
		b.read = nil
	}
	return n, err
}

// many repeats an item of a list.
func many(before, item, after string, n int) string {
	return before + strings.Repeat(item+",", n-1) + item + after
}

// leaving is a request that takes long, as a rule, and is left by its client.
type leaving struct{ name, method, path, body string }

func longRequests(t testing.TB) []leaving {
	row := func(w string) string {
		text, err := json.Marshal(word(w))
		require.NoError(t, err)
		return string(text)
	}
	rows := func(n int) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(row(fmt.Sprint("w", i)))
		}
		return b.String()
	}
	cats, text := row("cats"), strings.Repeat("cats and dogs ", 70_000)
	return []leaving{
		{"identical tokens", "POST", "/indices/a/search", many(`{"params":{"mode":"exhaustive"},"queries":[{"embeddings":[`, cats, `]}]}`, 40_000)},
		{"tokens", "POST", "/indices/a/search", `{"params":{"mode":"exhaustive"},"queries":[{"embeddings":[` + rows(4000) + `]}]}`},
		{"pruned tokens", "POST", "/indices/a/search", `{"queries":[{"embeddings":[` + rows(4000) + `]}]}`},
		{"queries", "POST", "/indices/a/search", many(`{"queries":[`, `{"embeddings":[`+cats+`]}`, `],"params":{"mode":"exhaustive"}}`, 5000)},
		{"conditions of queries", "POST", "/indices/a/search", many(`{"queries":[`, `{"embeddings":[`+cats+`],"filter_condition":"t LIKE '%a%b%c%d%e%zzz'"}`, `]}`, 2000)},
		{"condition", "POST", "/indices/a/metadata/query", `{"condition":"` + strings.Repeat(`t LIKE '%a%b%c%d%e%zzz' OR `, 1000) + `n = 1"}`},
		{"regexp", "POST", "/indices/a/metadata/query", `{"condition":"` + strings.Repeat(`t REGEXP '(c|a|t)*s.*zzz$' OR `, 100) + `n = 1"}`},
		{"delete", "DELETE", "/indices/a/documents", `{"condition":"` + strings.Repeat(`t LIKE '%a%b%c%d%e%zzz' OR `, 1000) + `n = -1"}`},
		{"metadata update", "POST", "/indices/a/metadata/update", `{"condition":"` + strings.Repeat(`t LIKE '%a%b%c%d%e%zzz' OR `, 1000) + `n = -1","updates":{"x":1}}`},
		{"words", "POST", "/indices/a/search", many(`{"text_query":[`, `"cats and dogs sleep"`, `]}`, 5000)},
		{"phrase", "POST", "/indices/a/search", `{"text_mode":"expression","text_query":["\"` + strings.Repeat("cats and ", 2000) + `\""]}`},
		{"phrases", "POST", "/indices/a/search", many(`{"text_mode":"expression","text_query":[`, `"\"`+strings.Repeat("cats and dogs ", 100)+`\""`, `]}`, 500)},
		{"explain", "POST", "/indices/a/explain", many(`{"document_id":1,"query":{"embeddings":[`, cats, `]}}`, 40_000)},
		{"explain, similarities", "POST", "/indices/a/explain", `{"document_id":1,"similarities":true,"query":{"embeddings":[` + rows(4000) + `]}}`},
		{"rerank", "POST", "/rerank", `{"query":[` + rows(3000) + `],` + many(`"documents":[`, `{"embeddings":[`+rows(1000)+`]}`, `]}`, 40)},
		{"rerank of texts", "POST", "/rerank_with_encoding", many(`{"query":"`+strings.Repeat("cats and dogs ", 1000)+`","documents":[`, `"`+text+`"`, `]}`, 3)},
		{"encode", "POST", "/encode", many(`{"input_type":"document","texts":[`, `"`+text[:10_000]+`"`, `]}`, 1000)},
		{"encode a long text", "POST", "/encode", `{"input_type":"document","texts":["` + text + `"]}`},
		{"encode queries", "POST", "/encode", many(`{"input_type":"query","texts":[`, `"`+text[:1000]+`"`, `]}`, 5000)},
		{"listing", "GET", "/indices/a/metadata", ""},
		{"metadata of a list", "POST", "/indices/a/metadata/get", many(`{"document_ids":[`, `1`, `]}`, 200_000)},
		{"body", "POST", "/indices/a/update", many(`{"documents":[`, `{"embeddings":[`+cats+`]}`, `]}`, 50_000)},
		{"fields", "POST", "/indices/a/update", many(`{"documents":[{"embeddings":[`+cats+`]}],"metadata":[{"x":[`, `{"y":1}`, `]}]}`, 200_000)},
		{"stats", "GET", "/indices/a/stats", ""},
		{"verify", "POST", "/indices/a/verify", ""},
		{"recall", "POST", "/indices/a/recall", many(`{"queries":[`, `{"embeddings":[`+rows(50)+`]}`, `]}`, 500)},
	}
}

// A client that leaves ends its request, wherever that is: nothing goes on for nobody. Most of
// these take many seconds as a whole; how soon they end is logged.
func TestLeavers(t *testing.T) {
	if !effort.Long() {
		t.Skip("a hundred long requests")
	}
	s := longService(t, nil)
	for _, l := range longRequests(t) {
		t.Run(l.name, func(t *testing.T) {
			var worst time.Duration
			left := 0
			for _, delay := range []time.Duration{0, 40 * time.Millisecond, 300 * time.Millisecond} {
				took, early := leave(t, s, &l, delay)
				if early {
					break
				}
				left++
				worst = max(worst, took)
			}
			t.Logf("%d times left, the end came %v later at most", left, worst)
		})
	}
	bodies, answers := server.Held(s)
	require.Zero(t, bodies)
	require.Zero(t, answers)
}

// What takes minutes as a whole ends when its time is over, and says so.
func TestDeadlines(t *testing.T) {
	if !effort.Long() {
		t.Skip("long requests")
	}
	s := &service{Server: longService(t, &server.Options{Limits: server.Limits{Quick: 300 * time.Millisecond, Work: 300 * time.Millisecond}})}
	for _, l := range longRequests(t) {
		switch l.name {
		case "condition", "delete", "metadata update", "conditions of queries", "recall":
			began := time.Now()
			p := s.refused(t, 408, server.CodeTimeout, l.method, l.path, l.body)
			t.Logf("%s: %v, %s", l.name, time.Since(began), p.Message)
		}
	}
	var info object
	s.ok(t, 200, "GET", "/indices/a", nil, &info)
	require.EqualValues(t, 5000, info["num_documents"])
}

// longService has what long requests look through.
func longService(t *testing.T, o *server.Options) *server.Server {
	st := openStore(t, nil)
	s, err := server.New(st.Catalog(), realEncoder(t), o)
	require.NoError(t, err)
	c, err := st.Create(context.Background(), "a", collection.Config{})
	require.NoError(t, err)
	var docs []collection.DocumentInput
	for i := range 5000 {
		docs = append(docs, collection.DocumentInput{
			ID: fmt.Sprint("d", i), Vectors: flat(strings.Repeat(fmt.Sprintf("cats dogs w%d x%d ", i, i%7), 30)), Dim: wordDim,
			Metadata: []byte(fmt.Sprintf(`{"t":"%s","n":%d}`, strings.Repeat("cats and dogs ", 100), i)),
		})
	}
	_, err = c.Update(context.Background(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	return s
}

// leave sends a request, leaves some time after its body was read, and returns how much
// later it ended; early: it ended before.
func leave(t *testing.T, s *server.Server, l *leaving, after time.Duration) (took time.Duration, early bool) {
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	read, ended := make(chan struct{}), make(chan struct{})
	var in io.Reader
	if l.body != "" {
		in = &lastByte{strings.NewReader(l.body), func() { close(read) }}
	} else {
		close(read)
	}
	r := httptest.NewRequestWithContext(ctx, l.method, l.path, in)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(l.body))
	w := httptest.NewRecorder()
	go func() {
		defer close(ended)
		defer func() { // an answer that was cut off
			if fault := recover(); fault != nil && fault != http.ErrAbortHandler { //nolint:errorlint // it is this very value
				t.Error(fault)
			}
		}()
		s.ServeHTTP(w, r)
	}()
	select {
	case <-read:
	case <-ended:
	}
	select {
	case <-time.After(after):
	case <-ended:
		require.NotContains(t, []int{404, 500}, w.Code, w.Body)
		return 0, true
	}
	left := time.Now()
	goAway()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the request goes on")
	}
	return time.Since(left), false
}

func realEncoder(t testing.TB) *encode.Encoder {
	e, err := encode.Open(filepath.Join("..", "docs", "examples", "quickstart", "colbert-nano"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}
