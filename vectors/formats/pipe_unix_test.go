//go:build unix

package formats_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/formats"
)

// A pipe that nobody writes to is not waited for.
func TestPipeIsRefused(t *testing.T) {
	for _, name := range []string{"x.parquet", "x.arrow"} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, syscall.Mkfifo(path, 0o666))
		done := make(chan error, 1)
		go func() {
			_, err := formats.Open(ctx, path)
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorIs(t, err, vectors.ErrFormat)
			require.ErrorContains(t, err, path)
		case <-time.After(30 * time.Second):
			t.Fatal("it waits")
		}
	}
}
