//go:build unix

package formats_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/formats"
)

// A pipe without a writer is not waited for: that would last until the time limit of go test.
func TestPipeIsRefused(t *testing.T) {
	for _, name := range []string{"x.parquet", "x.arrow"} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, syscall.Mkfifo(path, 0o666))
		_, err := formats.Open(ctx, path)
		require.ErrorIs(t, err, vectors.ErrFormat)
		require.ErrorContains(t, err, path)
	}
}
