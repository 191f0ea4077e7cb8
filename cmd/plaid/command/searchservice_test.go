package command

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search/highlight"
)

// A service answers as the index file does, and what it refuses is said with what helps.
func TestSearchService(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "docs.plaid")
	docs, err := plaid.Create(ctx, path, &plaid.Options{
		Model: nano, Passages: &encode.Splitting{By: encode.ByWords, Window: 5},
	})
	require.NoError(t, err)
	_, err = docs.Add(ctx,
		plaid.Document{ID: "owl", Title: "Owls", Text: "Owls hunt at night and sleep by day.", Payload: []byte(`{"year":2024}`)},
		plaid.Document{ID: "bee", Text: "Bees make honey.", Payload: []byte(`{"year":2019}`)})
	require.NoError(t, err)
	require.NoError(t, docs.Close())
	args := [][]string{
		{"--json", "--show-metadata"},
		{"--format", "table", "--highlight"},
		{"--format", "trec", "-k", "1"},
		{"--json", "--where", "year < ?", "--param", "2020"},
		{"--json", "--show-metadata", "--group", "--highlight"},
		{"--json", "--hybrid", "--alpha", ".4"},
		{"--json", "--hybrid", "--highlight", "--show-metadata"},
		{"--json", "--hybrid", "--highlight", "--group=sum", "--show-metadata", "--like", "bee"},
	}
	var want []string
	for _, more := range args {
		code, stdout, stderr := try(t, append([]string{"search", path, "who makes honey?"}, more...)...)
		require.Equal(t, exitOK, code, stderr)
		want = append(want, stdout)
	}
	docs, err = plaid.Open(ctx, path, nil)
	require.NoError(t, err)
	defer docs.Close()
	encoder, err := docs.Encoder(ctx)
	require.NoError(t, err)
	service := serving(t, docs.Catalog(), encoder)
	for i, more := range args {
		for _, address := range []string{"/docs", "/indices/docs/"} {
			code, stdout, stderr := try(t, append([]string{"search", service.URL + address, "who makes honey?"}, more...)...)
			require.Equal(t, exitOK, code, stderr)
			require.Equal(t, want[i], stdout, more)
		}
	}
	for _, m := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{service.URL + "/dosc", "x"}, exitNotFound, `did you mean "docs"?`},
		{[]string{service.URL, "x"}, exitUsage, "which index? there is docs"},
		{[]string{service.URL + "/docs"}, exitUsage, "which queries?"},
		{[]string{service.URL + "/docs", " "}, exitUsage, "an empty question finds nothing"},
		{[]string{service.URL + "/docs", "--queries", "q.npy"}, exitUsage, "questions as texts"},
		{[]string{service.URL + "/docs", "x", "--threads", "2"}, exitUsage, "--threads is for an index file"},
		{[]string{service.URL + "/docs", "x", "--where", "yer > 1"}, exitFailed, "year"},
		{[]string{service.URL + "/docs?a=b", "x"}, exitUsage, "ends in its name"},
		{[]string{"http://localhost:1/docs", "x"}, exitFailed, "refused"},
	} {
		code, _, stderr := try(t, append([]string{"search"}, m.args...)...)
		require.Equal(t, m.code, code, stderr)
		require.Contains(t, stderr, m.says)
	}
}

// What a service notes is said, and a passage of which it does not tell which it is has a line.
func TestSearchServiceNotes(t *testing.T) {
	answer := `{"num_queries": 1, "results": [{"query_id": 0, "document_ids": [1], "scores": [2.5], "metadata": [{"_id": "owl"}],
		"passages": [[{"document_id": 1, "id": "a", "score": 2.5, "n": -1, "start": 0, "end": 0}, {"document_id": 2, "id": "owl#1", "score": 2, "n": 1, "start": 5, "end": 9}]],
		"notes": ["document \"a\": the index has no text of the document", "document \"owl#1\": the index has no text of the document"]}]}`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	defer service.Close()
	code, stdout, stderr := try(t, "search", service.URL+"/docs", "who makes honey?", "--highlight", "--group", "--format", "table")
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "#?")
	require.Contains(t, stdout, "#1")
	require.Contains(t, stderr, `document "a": the index has no text of the document (and 1 more note)`)
	code, _, stderr = try(t, "search", service.URL+"/docs", "who makes honey?", "--highlight", "--json", "--quiet")
	require.Equal(t, exitOK, code, stderr)
	require.Empty(t, stderr)
}

// Why words are not known is said alike of a file and of a service that has it.
func TestWhyThereAreNoWords(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	texts, path := filepath.Join(dir, "texts.jsonl"), filepath.Join(dir, "pooled.plaid")
	require.NoError(t, os.WriteFile(texts, []byte(`{"_id": "owl", "text": "Owls hunt at night and sleep by day."}`+"\n"), 0o644))
	code, _, stderr := try(t, "index", path, "--text", texts, "--model", nano, "--pool", "2", "--centroids", "2")
	require.Equal(t, exitOK, code, stderr)
	docs, err := plaid.Open(ctx, path, &plaid.Options{ReadOnly: true, Model: nano})
	require.NoError(t, err)
	defer docs.Close()
	encoder, err := docs.Encoder(ctx)
	require.NoError(t, err)
	service := serving(t, docs.Catalog(), encoder)
	for _, where := range []string{path, service.URL + "/index"} {
		code, _, stderr := try(t, "search", where, "who hunts?", "--highlight", "--json")
		require.Equal(t, exitOK, code, stderr)
		require.Contains(t, stderr, highlight.ErrPooled.Error(), where)
	}
}
