package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// Windows may rename no file over one that is open, and an index is open when another takes
// its place: its lock is held. But it renames open files. So the old file gets another
// name first, then the new one its name, and then the old one a name under which it is
// removed with its last view. A program that dies in between leaves no file of the name
// of the index, and the old one under replacedSuffix: whoever opens the index
// next gives it its name back.
const (
	replacedSuffix = ".replaced.tmp"
	goneSuffix     = ".gone.tmp" // after a dash and a random number
)

// putInPlace gives a new file the name of the index, which may be open. If the old file
// could not be removed it is then gone, a name under which that is to be done once it is
// closed.
func putInPlace(tmp, path string) (gone string, err error) {
	if _, err := os.Lstat(path); !files.AsOnWindows || errors.Is(err, fs.ErrNotExist) {
		return "", os.Rename(tmp, path)
	}
	if runtime.GOOS == "windows" && os.Rename(tmp, path) == nil { // it is not open, or that is no matter
		return "", nil
	}
	replaced := siblingPath(path, replacedSuffix)
	if err := os.Remove(replaced); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := files.Rename(path, replaced); err != nil {
		return "", err
	}
	if err := files.Rename(tmp, path); err != nil {
		return "", errors.Join(err, files.Rename(replaced, path))
	}
	gone = goneName(path)
	if files.Rename(replaced, gone) != nil {
		gone = replaced
	}
	if os.Remove(gone) == nil { // now, or when nobody has it open any more
		return "", nil
	}
	return gone, nil
}

// putBack gives an index its name that lost it in an interrupted replacement. There may
// be nothing to be done; then it is false.
func putBack(ctx context.Context, path string, deadline time.Time) (done bool, err error) {
	replaced := siblingPath(path, replacedSuffix)
	f, err := files.OpenFile(replaced, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, boltfile.WithPath(path, err)
	}
	defer f.Close()
	// Who rewrites the index now has its lock alone. Who puts a copy in its place has not,
	// and fails.
	if err := boltfile.Lock(ctx, f, false, deadline); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	mine, err := f.Stat()
	if err != nil {
		return false, boltfile.WithPath(path, err)
	}
	if named, err := os.Stat(replaced); err != nil || !os.SameFile(mine, named) {
		return true, nil // another process was first
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err := giveName(replaced, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("%s: its replacement was interrupted, and it cannot be renamed back: %w", path, err)
	}
	return true, nil
}

// Remove takes the file away from its name, under the lock that is held. On Windows what
// it held goes when it is closed.
func (f *File) Remove() error {
	if !files.AsOnWindows {
		return os.Remove(f.path)
	}
	gone := goneName(f.path)
	if err := files.Rename(f.path, gone); err != nil {
		return err
	}
	if os.Remove(gone) != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.handle.gone = gone
	}
	return nil
}

func goneName(path string) string {
	return siblingPath(path, fmt.Sprintf("-%08x%s", rand.Uint32(), goneSuffix))
}

// sweepReplaced removes what replacements have left. The file that has the name of the
// index is open and locked, so none is under way.
func (f *File) sweepReplaced() {
	if !files.AsOnWindows {
		return
	}
	if os.Remove(siblingPath(f.path, replacedSuffix)) == nil {
		f.log.Info("removed an index that was replaced", "index", f.path)
	}
	for _, path := range randomlyNamed(f.path, goneSuffix) {
		_ = os.Remove(path) // views of another process may have it
	}
}

// randomlyNamed are the regular files beside path with its name, a dash, a number and an
// ending.
func randomlyNamed(path, suffix string) []string {
	dir, prefix := filepath.Split(strings.TrimSuffix(siblingPath(path, "-00000000"+suffix), "00000000"+suffix))
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // what follows will say why
	}
	var found []string
	for _, e := range entries {
		name := e.Name()
		if len(name) == len(prefix)+8+len(suffix) && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) && e.Type().IsRegular() {
			found = append(found, filepath.Join(dir, name))
		}
	}
	return found
}
