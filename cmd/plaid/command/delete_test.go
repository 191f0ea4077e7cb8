package command

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
)

// Somebody at a terminal is asked before all documents go, and only then.
func TestQuestionBeforeAllGoes(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "docs.plaid")
	docs, err := plaid.Create(ctx, path, &plaid.Options{Dim: 2})
	require.NoError(t, err)
	for _, id := range []string{"a", "b", "c"} {
		_, err := docs.Add(ctx, plaid.Document{ID: id, Text: id, Vectors: []float32{1, 0}})
		require.NoError(t, err)
	}
	require.NoError(t, docs.Close())
	ask := func(answer string, args ...string) (code int, stderr string) {
		var out, errs bytes.Buffer
		code = run(ctx, append([]string{"delete", path}, args...), streams{in: strings.NewReader(answer), out: &out, err: &errs, interactive: true})
		return code, errs.String()
	}
	code, stderr := ask("", "a")
	require.Equal(t, exitOK, code, "not all of them")
	require.Empty(t, stderr)
	for _, answer := range []string{"", "n\n", "\n", "yessir\n"} {
		code, stderr = ask(answer, "--where", "1=1")
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr, "This deletes all 2 documents of ")
		require.Contains(t, stderr, "nothing is deleted")
	}
	code, _ = ask("Y\n", "--where", "1=1")
	require.Equal(t, exitOK, code)
	code, stderr = ask("", "--where", "1=1")
	require.Equal(t, exitOK, code, "there are none left")
	require.Empty(t, stderr)
}
