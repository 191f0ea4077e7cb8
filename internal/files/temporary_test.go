package files

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A temporary file is read and written until it is closed, and leaves no name, whether or not the system
// takes that from an open file.
func TestTemporary(t *testing.T) {
	for _, named := range []bool{false, true} {
		dir := t.TempDir()
		f, err := NewTemporary(dir, "x-*")
		require.NoError(t, err)
		if named && !f.named {
			require.NoError(t, os.WriteFile(f.Name(), nil, 0o600))
			f.named = true
		}
		_, err = f.WriteAt([]byte("abc"), 0)
		require.NoError(t, err)
		b := make([]byte, 3)
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, "abc", string(b))
		require.NoError(t, f.Close())
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
		require.ErrorIs(t, f.Close(), os.ErrClosed)
	}
	_, err := NewTemporary(t.TempDir()+"/none", "x-*")
	require.ErrorIs(t, err, os.ErrNotExist)
}
