package index

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// TestImportPyLate: the folder of an index of PyLate, with its ids and without the documents that it
// has removed.
func TestImportPyLate(t *testing.T) {
	for ids, c := range map[string]struct{ docs, warnings int }{
		"plaid_ids_to_documents_ids.sqlite": {46, 0}, "removed.sqlite": {44, 1}, "removed.pkl": {44, 1},
	} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(filepath.Join(dir, "i", "fast_plaid_index"), os.DirFS("interop/testdata/real/fast-plaid")))
		data, err := os.ReadFile(filepath.Join("interop/testdata/pylate", ids))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "i", "plaid_ids_to_documents_ids"+filepath.Ext(ids)), data, 0o600))
		path := filepath.Join(dir, "x.plaid")
		r, err := Import(t.Context(), filepath.Join(dir, "i"), path, nil)
		require.NoError(t, err)
		require.Equal(t, c.docs, r.Docs)
		require.Equal(t, int64(16*c.docs), r.Tokens)
		require.Len(t, r.Warnings, c.warnings)
		reading(t, path, func(s *Snapshot) {
			require.Equal(t, c.docs, s.Len())
			require.NoError(t, s.Verify(t.Context()))
			for id, there := range map[string]bool{"doc 0": c.docs == 46, "doc 1": true, "1009": true, "long " + strings.Repeat("x", 1500): true, "doc 40": c.docs == 46, "0": false} {
				_, err := s.Get(id)
				require.Equal(t, there, err == nil, "%.20s: %v", id, err)
			}
		})
		numbers := make([]string, 46)
		for i := range numbers {
			numbers[i] = "n" + strings.Repeat("i", i)
		}
		r, err = Import(t.Context(), filepath.Join(dir, "i"), filepath.Join(dir, "y.plaid"), &ImportOptions{IDs: numbers})
		require.NoError(t, err)
		require.Equal(t, 46, r.Docs, "ids that are given come first")
		_, err = Import(t.Context(), filepath.Join(dir, "i"), filepath.Join(dir, "z.plaid"), &ImportOptions{IDs: numbers[:45]})
		require.ErrorIs(t, err, vectors.ErrID)
	}
}
