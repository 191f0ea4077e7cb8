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
	// ErrFolder: a folder in the place of a file.
	ErrFolder = errors.New("is a folder")
	// ErrSame: the file to write is one that must not be written.
	ErrSame = errors.New("is a file that is being read")
	// ErrOutcomeUnknown: what was written is in its place, and it is not known
	// whether it would be there after a power failure.
	ErrOutcomeUnknown = errors.New("outcome unknown: it is there, but may be gone after a power failure")
)

// AtomicFile is a file in the making. It is for one goroutine.
type AtomicFile struct {
	file   *os.File
	target string // "": written in place
	stop   func() bool
	ended  bool
}

// CreateAtomic begins a file. Close without Commit removes it. What is at path is
// replaced by Commit, keeping its mode, and its owner where that is allowed; a
// symbolic link stays, and what it points to is replaced. A device or pipe, and
// what has no name to replace, such as an open file of /dev/fd, is written in
// place; the context ends waiting for the other end of a pipe.
//
// A path that is a folder is [ErrFolder], one that names the same file as one of
// keep [ErrSame].
func CreateAtomic(ctx context.Context, path string, keep ...string) (*AtomicFile, error) {
	existing, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, k := range keep {
		if info, err := os.Stat(k); existing != nil && err == nil && os.SameFile(existing, info) {
			return nil, writeError(path, fmt.Errorf("%w: %s", ErrSame, k))
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
	f, err := Claim(target, 0o666)
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

// folderError is an error of the folder that a file or folder is to be in, whatever name
// beside it the system has spoken of.
func folderError(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return writeError(path, fmt.Errorf("folder %s: %w", filepath.Dir(path), err))
}

// openInPlace opens what is no regular file.
func openInPlace(ctx context.Context, path string) (*AtomicFile, error) {
	f, err := OpenPipe(ctx, path, os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	// A full pipe waits for its reader; closing it ends a write.
	return &AtomicFile{file: f, stop: context.AfterFunc(ctx, func() { f.Close() })}, nil
}

// Write appends to the file.
func (f *AtomicFile) Write(p []byte) (int, error) { return f.file.Write(p) }

// Commit makes the content durable and gives the file its name. The file is
// closed, whatever the outcome. After an error nothing has changed, unless it is
// [ErrOutcomeUnknown].
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
	if runtime.GOOS == "windows" { // which renames no open file
		err = errors.Join(err, f.file.Close())
	}
	if err == nil {
		err = os.Rename(f.file.Name(), f.target)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.file.Name()))
	}
	if runtime.GOOS != "windows" { // closed now, for the lock ends with it
		err = errors.Join(err, f.file.Close())
	}
	if err != nil {
		return writeError(f.target, err)
	}
	return syncParent(f.target)
}

// syncParent makes the name of what is in its place durable.
func syncParent(target string) error {
	if err := SyncFolder(filepath.Dir(target)); err != nil {
		return writeError(target, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err))
	}
	return nil
}

// Close gives the file up unless it is committed. It may be called twice.
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

// WriteAtomic writes a file by [CreateAtomic]; after an error of fill nothing has changed. What
// earlier calls left that were killed is removed.
func WriteAtomic(ctx context.Context, path string, fill func(io.Writer) error, keep ...string) error {
	f, err := CreateAtomic(ctx, path, keep...)
	if err != nil {
		return err
	}
	if f.target != "" {
		Sweep(f.target)
	}
	if err := fill(f); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return errors.Join(err, f.Close())
	}
	return f.Commit()
}

// CanCreate returns why [CreateAtomic] could put no file at path: a folder that is not there, or
// takes no files. nil means that it can. It is for programs that have much work to do before they write.
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

// resolveLinks follows symbolic links to the name that is none, of what is there or
// of what is to be, in a folder of which the path has none either.
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
			name = dir + string(filepath.Separator) + link // not cleaned: its own links come before ".."
		}
	}
	return "", writeError(path, errors.New("too many symbolic links"))
}

const partialInfix = ".plaid-partial-"

// What an attempt to lock comes to.
const (
	lockHeld        = iota
	lockBusy        // somebody else has the lock
	lockUnsupported // there are no locks on this system or file system
)

// tryLock takes a lock of an open file or folder, until it is closed.
func tryLock(f *os.File, lock func(*os.File) error) int {
	switch err := lock(f); {
	case err == nil:
		return lockHeld
	case errors.Is(err, ErrLocked):
		return lockBusy
	}
	return lockUnsupported
}

// TryLock takes the lock of an open file, until it is closed, and reports false if somebody
// else has it. Where there are no locks it reports true.
func TryLock(f *os.File) bool { return tryLock(f, LockExclusive) != lockBusy }

// partialPrefix is how the temporary names for target begin.
func partialPrefix(target string) string {
	base := filepath.Base(target)
	const most = 255 - len(partialInfix) - 16 // of a name, on nearly every system
	if len(base) > most {
		base = base[:most]
		for len(base) > 0 && !utf8.ValidString(base) {
			base = base[:len(base)-1]
		}
	}
	return base + partialInfix
}

// Claim makes a new file beside target, of a name that [Sweep] knows, and locks it shared, so
// that no sweep takes it for a leftover.
func Claim(target string, mode fs.FileMode) (*os.File, error) {
	return createLocked(target, func(name string) (*os.File, error) {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	})
}

// createLocked is Claim for a file or folder.
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
		// A sweep may have been faster: it has the lock, or has removed the thing.
		if tryLock(f, LockShared) != lockBusy && isOpenFile(f, f.Name()) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("no name for a temporary beside it: %w", fs.ErrExist)
}

// isOpenFile reports whether name still is the open file.
func isOpenFile(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// Sweep removes what writers for target left that were killed, and returns their names. It is
// no fault if that cannot be done.
func Sweep(target string) (removed []string) {
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
