package operate

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/internal/files"
)

// Scratch makes a folder below dir for files that are to become objects, or are made of some;
// "": below that for temporary files. What processes that were killed have left there goes.
func Scratch(dir string) (path string, remove func() error, err error) {
	dir = cmp.Or(dir, os.TempDir())
	place := filepath.Join(dir, "plaid-cluster-scratch")
	if _, err := os.Lstat(place); err == nil { // nothing has that name: somebody else means harm
		path, err := os.MkdirTemp(dir, "plaid-cluster-*")
		return path, func() error { return os.RemoveAll(path) }, err
	}
	f, err := files.CreateAtomicFolder(place)
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(f.Path(), 0o700); err != nil { // documents are not for everybody
		return "", nil, errors.Join(err, f.Close())
	}
	return f.Path(), f.Close, nil
}
