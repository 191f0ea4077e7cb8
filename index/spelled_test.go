package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// An id that is not there as it is written, but in the other form of Unicode, is told.
func TestSpelled(t *testing.T) {
	for _, stored := range []string{"caf\u00e9.md", "cafe\u0301.md"} {
		asked := "caf\u00e9.md"
		if stored == asked {
			asked = "cafe\u0301.md"
		}
		src, err := vectors.FromDocuments(2, []vectors.Document{{ID: stored, Tokens: []float32{1, 0}}})
		require.NoError(t, err)
		path := t.TempDir() + "/x.plaid"
		_, err = Build(t.Context(), path, src, &BuildOptions{Centroids: 1})
		require.NoError(t, err)
		ix, err := Open(t.Context(), path, nil)
		require.NoError(t, err)
		defer ix.Close()
		snap, err := ix.Snapshot()
		require.NoError(t, err)
		defer snap.Close()
		other, err := snap.FindOtherSpelling(asked)
		require.NoError(t, err)
		require.Equal(t, stored, other)
		err = snap.NotFoundError(asked)
		require.ErrorIs(t, err, ErrNotFound)
		require.ErrorContains(t, err, "which looks the same")
		other, err = snap.FindOtherSpelling("cafe.md")
		require.NoError(t, err)
		require.Empty(t, other)
		require.EqualError(t, snap.NotFoundError("cafe.md"), ErrNotFound.Error()+`: "cafe.md"`)
	}
}
