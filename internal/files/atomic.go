package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"
)

// Errors; test with errors.Is.
var (
	// ErrFolder reports a folder where a file is expected.
	ErrFolder = errors.New("is a folder")
	// ErrOutputIsInput reports an output that is one of the files to keep.
	ErrOutputIsInput = errors.New("is a file that is being read")
	// ErrOutcomeUnknown reports that the file was written, but may be gone after a power failure.
	ErrOutcomeUnknown = errors.New("outcome unknown: it is there, but may be gone after a power failure")
)

// AtomicFile is a file that appears when it is committed. It is not safe for concurrent use.
type AtomicFile struct {
	file   *os.File
	target string      // "" means that path itself is written
	stop   func() bool // ends waiting for the context, if path itself is written
	ended  bool
}

// CreateAtomic begins a file. Commit replaces the file at path, and keeps its mode, and its owner
// where that is allowed. Close without Commit removes the new file. A symbolic link stays; the file
// that it points to is replaced. A device or pipe, and a path without a name that could be
// replaced, such as an open file of /dev/fd, is written in place; ctx limits the wait for the other
// end of a pipe.
//
// A folder at path is an [ErrFolder], and a path to one of the files in keep an [ErrOutputIsInput].
func CreateAtomic(ctx context.Context, path string, keep ...string) (*AtomicFile, error) {
	existing, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, k := range keep {
		if info, err := os.Stat(k); existing != nil && err == nil && os.SameFile(existing, info) {
			return nil, writeError(path, fmt.Errorf("%w: %s", ErrOutputIsInput, k))
		}
	}
	if existing != nil && existing.IsDir() {
		return nil, writeError(path, ErrFolder)
	}
	target, err := resolveLinks(path)
	if err != nil {
		return nil, err
	}
	if existing != nil {
		if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() || !os.SameFile(existing, info) {
			return openInPlace(ctx, path)
		}
	}
	f, err := CreatePartial(target, 0o666)
	if err != nil {
		return nil, folderError(path, err)
	}
	if existing != nil {
		copyOwner(f, existing)
		if err := f.Chmod(existing.Mode().Perm()); err != nil && runtime.GOOS != "windows" {
			return nil, errors.Join(writeError(path, err), f.Close(), os.Remove(f.Name()))
		}
	}
	return &AtomicFile{file: f, target: target}, nil
}

func writeError(path string, err error) error {
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

// folderError returns an error about the folder of a file, instead of the temporary name that err
// is about.
func folderError(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return writeError(path, fmt.Errorf("folder %s: %w", filepath.Dir(path), err))
}

// openInPlace opens a file that is not regular.
func openInPlace(ctx context.Context, path string) (*AtomicFile, error) {
	f, err := OpenPipe(ctx, path, os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	// A write to a full pipe blocks until f is closed.
	return &AtomicFile{file: f, stop: context.AfterFunc(ctx, func() { f.Close() })}, nil
}

// Write appends to the file.
func (f *AtomicFile) Write(p []byte) (int, error) { return f.file.Write(p) }

// Commit makes the content durable and gives the file its name. It closes the file in any case.
// After an error nothing has changed, unless the error is [ErrOutcomeUnknown].
func (f *AtomicFile) Commit() error {
	if f.ended {
		return os.ErrClosed
	}
	f.ended = true
	if f.target == "" {
		f.stop()
		return f.file.Close()
	}
	err := f.file.Sync()
	if runtime.GOOS == "windows" { // it cannot rename open files
		err = errors.Join(err, f.file.Close())
	}
	if err == nil {
		err = os.Rename(f.file.Name(), f.target)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.file.Name()))
	}
	if runtime.GOOS != "windows" { // closing it ends its lock, so close it after the rename
		err = errors.Join(err, f.file.Close())
	}
	if err != nil {
		return writeError(f.target, err)
	}
	return syncParent(f.target)
}

// syncParent makes the name of target durable.
func syncParent(target string) error {
	if err := SyncFolder(filepath.Dir(target)); err != nil {
		return writeError(target, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err))
	}
	return nil
}

// Close removes the file unless it is committed. It may be called twice.
func (f *AtomicFile) Close() error {
	if f.ended {
		return nil
	}
	f.ended = true
	if f.target == "" {
		f.stop()
		return f.file.Close()
	}
	if runtime.GOOS == "windows" {
		return errors.Join(f.file.Close(), os.Remove(f.file.Name()))
	}
	return errors.Join(os.Remove(f.file.Name()), f.file.Close())
}

// WriteAtomic writes a file by [CreateAtomic]. After an error of fill nothing has changed. It
// removes leftovers of earlier calls that were killed.
func WriteAtomic(ctx context.Context, path string, fill func(io.Writer) error, keep ...string) error {
	f, err := CreateAtomic(ctx, path, keep...)
	if err != nil {
		return err
	}
	if f.target != "" {
		RemoveLeftovers(f.target)
	}
	if err := fill(f); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return errors.Join(err, f.Close())
	}
	return f.Commit()
}

// CanCreate returns why [CreateAtomic] could not create a file at path: its folder does not exist,
// or is not writable. nil means that it can. It is for programs with much work to do before they
// write.
func CanCreate(path string) error {
	existing, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && existing.IsDir():
		return writeError(path, ErrFolder)
	case err == nil && !existing.Mode().IsRegular():
		return nil
	}
	target, err := resolveLinks(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".plaid-*")
	if err != nil {
		return folderError(path, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// resolveLinks follows symbolic links to the final name, which may not exist yet, in a folder whose
// path has no links either.
func resolveLinks(path string) (string, error) {
	name := path
	for range 40 {
		dir, base := filepath.Split(name)
		if dir == "" {
			dir = "."
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return "", folderError(path, err)
		}
		name = filepath.Join(dir, base)
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		link, err := os.Readlink(name)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(link) {
			name = link
		} else {
			name = dir + string(filepath.Separator) + link // not cleaned: links in link must be followed before ".."
		}
	}
	return "", writeError(path, errors.New("too many symbolic links"))
}

// partialInfix is between the name and the random digits of a temporary name.
const partialInfix = ".plaid-partial-"

// Results of tryLock.
const (
	lockHeld        = iota
	lockBusy        // another process or handle has the lock
	lockUnsupported // this system or file system has no locks
)

// tryLock locks an open file or folder, until it is closed.
func tryLock(f *os.File, lock func(*os.File) error) int {
	switch err := lock(f); {
	case err == nil:
		return lockHeld
	case errors.Is(err, ErrLocked):
		return lockBusy
	}
	return lockUnsupported
}

// TryLock locks an open file, until it is closed. It returns false if another process or handle has
// the lock, and true on systems without locks.
func TryLock(f *os.File) bool { return tryLock(f, LockExclusive) != lockBusy }

// partialPrefix returns the beginning of the temporary names for target.
func partialPrefix(target string) string {
	base := filepath.Base(target)
	const maxBase = 255 - len(partialInfix) - 16 // nearly every system allows 255 bytes
	if len(base) > maxBase {
		base = base[:maxBase]
		for len(base) > 0 && !utf8.ValidString(base) {
			base = base[:len(base)-1]
		}
	}
	return base + partialInfix
}

// CreatePartial creates a file next to target, with a temporary name that [RemoveLeftovers] recognizes, and locks it
// shared, so that RemoveLeftovers does not remove it.
func CreatePartial(target string, mode fs.FileMode) (*os.File, error) {
	return createLocked(target, func(name string) (*os.File, error) {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	})
}

// createLocked is CreatePartial for a file or a folder, which create creates.
func createLocked(target string, create func(name string) (*os.File, error)) (*os.File, error) {
	dir, pre := filepath.Dir(target), partialPrefix(target)
	for range 100 {
		f, err := create(filepath.Join(dir, fmt.Sprintf("%s%016x", pre, rand.Uint64())))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// A concurrent RemoveLeftovers may have locked or removed it already.
		if tryLock(f, LockShared) != lockBusy && isOpenFile(f, f.Name()) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("no free name for a temporary file next to it: %w", fs.ErrExist)
}

// isOpenFile reports whether name still refers to the open file.
func isOpenFile(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// RemoveLeftovers removes leftovers of killed writers for target, and returns their names. It ignores errors.
func RemoveLeftovers(target string) (removed []string) {
	dir, pre := filepath.Dir(target), partialPrefix(target)
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	for err == nil {
		var names []string
		names, err = d.Readdirnames(1024)
		for _, name := range names {
			rest, ok := strings.CutPrefix(name, pre)
			path := filepath.Join(dir, name)
			if ok && len(rest) == 16 && strings.Trim(rest, "0123456789abcdef") == "" && removeLeftover(path) {
				removed = append(removed, path)
			}
		}
	}
	return removed
}

// removeLeftover removes a file or folder unless its writer still has the lock.
func removeLeftover(path string) (removed bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return false
	}
	f, err := OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return tryLock(f, LockExclusive) == lockHeld && isOpenFile(f, path) && os.RemoveAll(path) == nil
}
