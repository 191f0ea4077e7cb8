//go:build unix

package modeldir

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
)

// A pipe in the place of a file of settings is not waited for: that would last until the
// time limit of go test.
func TestPipeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, syscall.Mkfifo(path, 0o666))
	_, err := openFile(path)
	require.ErrorIs(t, err, files.ErrNotRegular)
	require.ErrorContains(t, err, path)
}
