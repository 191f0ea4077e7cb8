package command

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	folders "github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
)

// encodingServer speaks as PyLate's does, with the model in the repository.
func encodingServer(t *testing.T) *httptest.Server {
	e, err := encode.Open(nano, &encode.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	st, err := folders.Open(t.Context(), t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close(context.Background())) })
	return serving(t, st.Catalog(), e)
}

// serving is a service of some indexes, and of what encodes texts for them.
func serving(t *testing.T, indexes collection.Catalog, e server.Encoder) *httptest.Server {
	handler, err := server.New(indexes, e, nil)
	require.NoError(t, err)
	service := httptest.NewServer(handler)
	t.Cleanup(service.Close)
	return service
}

// few is a file of the first texts of the corpus.
func few(t *testing.T, n int) string {
	b, err := os.ReadFile(corpus)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "few.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(strings.SplitAfter(string(b), "\n")[:n], "")), 0o644))
	return path
}

// Texts and questions go to the server that --encoder or the index names.
func TestServerEncodes(t *testing.T) {
	srv, dir := encodingServer(t), t.TempDir()
	path, texts := filepath.Join(dir, "x.plaid"), few(t, 8)
	code, _, stderr := try(t, "index", path, "--text", texts, "--encoder", srv.URL, "--encoder-option", "api=pylate", "--encoder-option", "batch=3", "-q")
	require.Equal(t, exitOK, code, stderr)
	near := filepath.Join(dir, "near.plaid")
	code, _, stderr = try(t, "index", near, "--text", texts, "--model", nano, "--encoder", "native", "-q")
	require.Equal(t, exitOK, code, stderr)

	const question = "do proteins outside the cell serve as nutrients?"
	code, want, stderr := try(t, "search", near, question)
	require.Equal(t, exitOK, code, stderr)
	code, got, stderr := try(t, "search", path, question) // the index names the server
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, want, got)
	code, _, stderr = try(t, "search", path, question, "--model", nano)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "another model")
	code, _, stderr = try(t, "add", near, "--text", texts, "--replace", "--encoder", srv.URL, "--encoder-option", "api=pylate")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "another model")
	id := strings.Fields(want[strings.Index(want, "\n"):])[2]
	code, got, stderr = try(t, "explain", path, id, question)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, got+stderr, "a server does not tell the pieces of a text")

	for message, args := range map[string][]string{
		"--precision is for the folder of a model":            {"--encoder", srv.URL, "--precision", "int8"},
		`"batch": want KEY=VALUE`:                             {"--encoder", srv.URL, "--encoder-option", "batch"},
		`"batch=x": strconv`:                                  {"--encoder", srv.URL, "--encoder-option", "batch=x"},
		`"nosuch": there is native, device, onnxruntime, and`: {"--encoder", "nosuch"},
		"has no such option":                                  {"--encoder", srv.URL, "--encoder-option", "library=x"},
		"--encoder native has no such option":                 {"--model", nano, "--encoder-option", "api=pylate"},
		"--encoder onnxruntime has no such option":            {"--model", nano, "--encoder", "onnxruntime", "--encoder-option", "timeout=1s"},
		"--encoder goes with questions as texts":              {"--queries", "x.npy", "--encoder", srv.URL},
	} {
		line := []string{"add", path, "--text", texts}
		if args[0] == "--queries" {
			line = []string{"search", path}
		}
		code, _, stderr := try(t, append(line, args...)...)
		require.Equal(t, exitUsage, code, "%s: %s", args, stderr)
		require.Contains(t, stderr, message)
	}
	srv.Close()
	code, _, stderr = try(t, "add", path, "--text", texts, "--replace", "--encoder-option", "attempts=1")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, srv.URL)

	// What a folder is computed with is named, and nothing stands in for it.
	t.Setenv("PLAID_ONNXRUNTIME", "")
	path = filepath.Join(dir, "y.plaid")
	code, _, stderr = try(t, "index", path, "--text", texts, "--model", nano, "--encoder", "onnxruntime", "--encoder-option", "library=/nosuch/lib.so")
	require.Equal(t, exitFailed, code, stderr)
	require.NoFileExists(t, path)
}
