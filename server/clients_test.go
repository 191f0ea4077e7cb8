package server_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/server"
)

// The clients that exist use the service as they are published: next-plaid-client
// (both classes and the command line), langchain-plaid, those of OpenAI and Cohere, and one of
// Jina's service. A validator of OpenAPI reads the description.
func TestRealClients(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs Python packages")
	}
	python := pyenv.Python(t, "testdata/clients/requirements.txt")
	plain := start(t, nil, nil)
	texts := start(t, words{}, nil)
	loading := start(t, nil, &server.Options{EncoderLater: true})
	limited := start(t, nil, &server.Options{Limits: server.Limits{Rate: .001, Burst: 5}})
	tokens := start(t, nil, &server.Options{Tokens: server.Tokens{server.NewToken("reader", server.Read, "read-read-read-read")}})

	args := []string{
		"testdata/clients/clients.py", "--plain", plain.URL, "--texts", texts.URL, "--loading", loading.URL, "--damaged", damaged(t).URL,
		"--limited", limited.URL, "--tokens", tokens.URL, "--tmp", t.TempDir(), "--keywords",
	}
	out, err := pyenv.Run([]string{"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "LANGSMITH_TRACING=false"}, python, args...)
	require.NoError(t, err, out)
	t.Log(out)
}

// damaged is a service one index of which cannot be opened.
func damaged(t *testing.T) *service {
	dir := t.TempDir()
	st, err := store.Open(context.Background(), dir, nil)
	require.NoError(t, err)
	c, err := st.Create(context.Background(), "damaged", collection.Config{})
	require.NoError(t, err)
	_, err = c.Update(context.Background(), []collection.DocumentInput{{Vectors: flat("a b"), Dim: wordDim}}, collection.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, st.Close(context.Background()))
	files, err := filepath.Glob(filepath.Join(dir, "damaged", "*.plaid"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		require.NoError(t, os.WriteFile(f, bytes.Repeat([]byte("no index"), 4096), 0o666))
	}
	return startAt(t, openStoreAt(t, dir, nil), nil, nil)
}
