// Package sources is for tests that compile source files or run them as other programs.
package sources

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Watch makes the cached result of a test depend on the names, sizes and times of all files
// below a folder. go test only tracks files that the test itself opens, and would return an
// old result for a program that has changed.
func Watch(t *testing.T, root string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name()[0] == '.' || d.Name() == "__pycache__" || d.Name() == "dist"):
			return fs.SkipDir
		}
		return nil
	}))
}
