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

// Windows cannot rename a file over one that is open, and an index is open while it is replaced,
// since its lock is held. But it can rename open files. So a replacement has three steps:
//
//  1. The old file gets the name with replacedSuffix.
//  2. The new file gets the name of the index.
//  3. The old file gets a random name with removalSuffix, under which it is removed after its last
//     snapshot is closed.
//
// If a program dies after step 1, the index has no file. The next process to open it renames the old
// file back (undoInterruptedReplace).
const (
	replacedSuffix = ".replaced.tmp"
	removalSuffix  = ".gone.tmp" // after a dash and a random number
)

// renameOver renames a new file to the path of the index, which may be open. removeLater is the path
// of the old file if that must be removed after it is closed, or "" if it was removed.
func renameOver(tmp, path string) (removeLater string, err error) {
	if _, err := os.Lstat(path); !files.EmulateWindows || errors.Is(err, fs.ErrNotExist) {
		return "", os.Rename(tmp, path)
	}
	if runtime.GOOS == "windows" && os.Rename(tmp, path) == nil { // the old file was not open
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
	removeLater = removalPath(path)
	if files.Rename(replaced, removeLater) != nil {
		removeLater = replaced
	}
	if os.Remove(removeLater) == nil { // now, or by the system when the last process closes it
		return "", nil
	}
	return removeLater, nil
}

// undoInterruptedReplace renames an index back that lost its name in an interrupted replacement. done
// is false if there was no such replacement, and true if this or another process has changed the
// names.
func undoInterruptedReplace(ctx context.Context, path string, deadline time.Time) (done bool, err error) {
	replaced := siblingPath(path, replacedSuffix)
	f, err := files.OpenFile(replaced, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, boltfile.WithPath(path, err)
	}
	defer f.Close()
	// The lock excludes a process that is rewriting the index. A process that replaces it by a copy
	// has no lock; its replacement fails.
	if err := boltfile.Lock(ctx, f, false, deadline); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	locked, err := f.Stat()
	if err != nil {
		return false, boltfile.WithPath(path, err)
	}
	if named, err := os.Stat(replaced); err != nil || !os.SameFile(locked, named) {
		return true, nil // another process was first
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err := renameNew(replaced, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("%s: its replacement was interrupted, and it cannot be renamed back: %w", path, err)
	}
	return true, nil
}

// Remove removes the file, which is open for writing. On Windows its content is removed when it is
// closed.
func (f *File) Remove() error {
	if !files.EmulateWindows {
		return os.Remove(f.path)
	}
	removalName := removalPath(f.path)
	if err := files.Rename(f.path, removalName); err != nil {
		return err
	}
	if os.Remove(removalName) != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.handle.removeAtClose = removalName
	}
	return nil
}

// removalPath returns a random path for a replaced file that will be removed.
func removalPath(path string) string {
	return siblingPath(path, fmt.Sprintf("-%08x%s", rand.Uint32(), removalSuffix))
}

// removeReplaced removes the leftovers of replacements. The file at the path of the index is open and
// locked, so that no replacement is in progress.
func (f *File) removeReplaced() {
	if !files.EmulateWindows {
		return
	}
	if os.Remove(siblingPath(f.path, replacedSuffix)) == nil {
		f.log.Info("removed an index that was replaced", "index", f.path)
	}
	for _, path := range randomlyNamed(f.path, removalSuffix) {
		_ = os.Remove(path) // fails if another process has it open
	}
}

// randomlyNamed returns the regular files in the folder of path that are named like it, followed by
// a dash, eight random digits, and the suffix.
func randomlyNamed(path, suffix string) []string {
	dir, prefix := filepath.Split(strings.TrimSuffix(siblingPath(path, "-00000000"+suffix), "00000000"+suffix))
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the next use of the folder reports the error
	}
	var found []string
	for _, e := range entries {
		name := e.Name()
		matches := strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
		if matches && len(name) == len(prefix)+8+len(suffix) && e.Type().IsRegular() {
			found = append(found, filepath.Join(dir, name))
		}
	}
	return found
}
