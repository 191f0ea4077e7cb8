package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMap(t *testing.T) {
	for _, content := range []string{"", "x", "some bytes of a file"} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
		f, err := os.Open(path)
		require.NoError(t, err)
		m, err := Map(f, int64(len(content)))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, content, string(m.Data))
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
	}
}

func TestMapFaults(t *testing.T) {
	f, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer f.Close()
	_, err = Map(f, 10)
	require.Error(t, err)
	_, err = Map(f, -1)
	require.Error(t, err)
}
