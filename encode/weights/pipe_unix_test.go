//go:build unix

package weights

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/files"
)

// A pipe in the place of a graph is not waited for.
func TestPipeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.onnx")
	require.NoError(t, syscall.Mkfifo(path, 0o666))
	done := make(chan error, 1)
	go func() {
		_, err := loadONNX(&modeldir.Config{Weights: []string{path}})
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorIs(t, err, files.ErrNotRegular)
		require.ErrorContains(t, err, path)
	case <-time.After(30 * time.Second):
		t.Fatal("it waits")
	}
}
