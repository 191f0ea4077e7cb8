package command

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// An index file of the service whose documents have no vectors yet says so, and not that it has a
// dimension of 1.
func TestIndexWithoutVectors(t *testing.T) {
	src, err := vectors.FromDocuments(0, []vectors.Document{{ID: "a", Payload: []byte(`{"text":"cats sleep"}`)}})
	require.NoError(t, err)
	o, err := collection.Growth{}.FirstBuild(src, 0, collection.Config{})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err = index.Build(t.Context(), path, src, o)
	require.NoError(t, err)
	code, stdout, stderr := try(t, "info", path)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "vectors:    none yet: the first ones determine the dimension\n")
	texts := filepath.Join(filepath.Dir(path), "x.txt")
	require.NoError(t, os.WriteFile(texts, []byte("dogs bark\n"), 0o666))
	for _, args := range [][]string{
		{"add", path, "--text", texts, "--model", nano},
		{"search", path, "cats", "--model", nano},
	} {
		code, _, stderr = try(t, args...)
		require.Equal(t, exitFailed, code, args)
		require.Contains(t, stderr, "it has no vectors yet", args)
	}
}
