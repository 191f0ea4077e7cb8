// Package sources is for tests of what they compile or run as other programs.
package sources

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Watch makes the result of a test depend on the names, sizes and times of all files
// below a folder: go test knows of those that the test itself opens, and would give an
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
