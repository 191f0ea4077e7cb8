package command

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
)

// A service answers as the index file does, and what it refuses is said with what helps.
func TestSearchService(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "docs.plaid")
	docs, err := plaid.Create(ctx, path, &plaid.Options{
		Model: filepath.Join("..", "..", "..", "examples", "quickstart", "colbert-nano"), Passages: &encode.Parting{By: encode.ByWords, Size: 5},
	})
	require.NoError(t, err)
	_, err = docs.Add(ctx,
		plaid.Document{ID: "owl", Title: "Owls", Text: "Owls hunt at night and sleep by day.", Payload: []byte(`{"year":2024}`)},
		plaid.Document{ID: "bee", Text: "Bees make honey.", Payload: []byte(`{"year":2019}`)})
	require.NoError(t, err)
	require.NoError(t, docs.Close())
	args := [][]string{
		{"--json", "--payload"},
		{"--format", "table", "--highlight"},
		{"--format", "trec", "-k", "1"},
		{"--json", "--where", "year < ?", "--param", "2020"},
		{"--json", "--payload", "--group", "--highlight"},
		{"--json", "--hybrid", "--alpha", ".4"},
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
	handler, err := server.New(docs.Set(), encoder, nil)
	require.NoError(t, err)
	service := httptest.NewServer(handler)
	defer service.Close()
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
		{[]string{service.URL + "/docs", "x", "--bound", "worst"}, exitUsage, "--bound is for an index file"},
		{[]string{service.URL + "/docs", "x", "--where", "yer > 1"}, exitFailed, "year"},
		{[]string{service.URL + "/docs?a=b", "x"}, exitUsage, "ends in its name"},
		{[]string{"http://localhost:1/docs", "x"}, exitFailed, "refused"},
	} {
		code, _, stderr := try(t, append([]string{"search"}, m.args...)...)
		require.Equal(t, m.code, code, stderr)
		require.Contains(t, stderr, m.says)
	}
}
