package plaid

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that was made and could not be opened goes, unless another program has it, or has stored
// something meanwhile.
func TestTakeBack(t *testing.T) {
	ctx, o := t.Context(), &Options{Dim: 4}
	make := func() *Collection {
		c, err := Create(ctx, filepath.Join(t.TempDir(), "docs.plaid"), o)
		require.NoError(t, err)
		return c
	}
	c := make()
	require.NoError(t, c.removeCreated())
	require.FileExists(t, c.path, "it is open")
	require.NoError(t, c.Close())
	require.NoError(t, c.removeCreated())
	require.NoFileExists(t, c.path)
	require.NoError(t, c.removeCreated())

	c = make()
	_, err := c.Add(ctx, Document{ID: "a", Vectors: []float32{1, 0, 0, 0}})
	require.NoError(t, err)
	_, err = c.Delete(ctx, Selection{IDs: []string{"a"}})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.removeCreated())
	require.FileExists(t, c.path)
}
