package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// AtomicFolder is a folder that appears when it is committed. It is not safe for concurrent use.
type AtomicFolder struct {
	lock      *os.File // on path
	path      string
	target    string
	givenPath string
	mode      fs.FileMode // of the folder that is replaced. 0 means that no folder is replaced
	ended     bool
}

// CreateAtomicFolder begins a folder. The folder at path must not exist, or be empty (otherwise the
// error wraps fs.ErrExist). Commit replaces an empty folder and keeps its mode; a symbolic link to
// one stays. Close without Commit removes the new folder.
func CreateAtomicFolder(path string) (*AtomicFolder, error) {
	if err := checkVacant(path); err != nil {
		return nil, err
	}
	switch base := filepath.Base(path); base {
	case ".", "..", string(filepath.Separator):
		return nil, writeError(path, errors.New("is not a name for a new folder: give the folder by its name"))
	}
	target, err := resolveLinks(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	existing, err := os.Stat(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	RemoveLeftovers(target)
	lock, err := createLocked(target, func(name string) (*os.File, error) {
		if err := os.Mkdir(name, 0o777); err != nil {
			return nil, err
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) { // a concurrent RemoveLeftovers removed it
			return nil, fs.ErrExist
		} else if err != nil {
			return nil, errors.Join(err, os.Remove(name))
		}
		return f, nil
	})
	if err != nil {
		return nil, folderError(path, err)
	}
	d := &AtomicFolder{lock: lock, path: lock.Name(), target: target, givenPath: path}
	if existing != nil {
		d.mode = existing.Mode() & (fs.ModePerm | fs.ModeSetgid | fs.ModeSticky)
		copyOwner(lock, existing)
		if err := os.Chmod(d.path, d.mode|0o700); err != nil { // never more permissive than the old folder
			return nil, errors.Join(writeError(path, err), d.Close())
		}
	}
	return d, nil
}

// checkVacant returns why no folder can be created at path. nil means that one can.
func checkVacant(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() { // not opened: a pipe would wait
		return writeError(path, fmt.Errorf("a file of that name: %w", fs.ErrExist))
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	switch _, err := d.Readdirnames(1); {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return writeError(path, fmt.Errorf("the folder is not empty: %w", fs.ErrExist))
	default:
		return err
	}
}

// Path returns the path of the folder until it is committed.
func (d *AtomicFolder) Path() string { return d.path }

// Write writes a file of the folder, and makes it durable.
func (d *AtomicFolder) Write(name string, fill func(io.Writer) error) error {
	f, err := d.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(fill(w), w.Flush()); err != nil {
		return errors.Join(err, f.Close())
	}
	return CloseSynced(f)
}

// Create creates a file of the folder. The caller closes it by [CloseSynced].
func (d *AtomicFolder) Create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(d.path, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// CloseSynced makes a file durable and closes it.
func CloseSynced(f *os.File) error { return errors.Join(f.Sync(), f.Close()) }

// Commit gives the folder its name. Its files must be durable. After an error only Close may be
// called, which removes the folder, unless the error is [ErrOutcomeUnknown].
func (d *AtomicFolder) Commit() error {
	if d.ended {
		return os.ErrClosed
	}
	if d.mode != 0 {
		if err := os.Chmod(d.path, d.mode); err != nil {
			return writeError(d.givenPath, err)
		}
	}
	if err := SyncFolder(d.path); err != nil {
		return err
	}
	if err := checkVacant(d.target); err != nil {
		return err
	}
	// Not every system renames over an empty folder.
	if err := os.Remove(d.target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return writeError(d.givenPath, err)
	}
	if runtime.GOOS == "windows" { // it cannot rename open files
		d.lock.Close()
	}
	if err := os.Rename(d.path, d.target); err != nil {
		return writeError(d.givenPath, err)
	}
	d.ended = true
	d.lock.Close() // its error does not matter: nothing was written through it
	return syncParent(d.target)
}

// Close removes the folder unless it is committed. It may be called twice.
func (d *AtomicFolder) Close() error {
	if d.ended {
		return nil
	}
	d.ended = true
	if runtime.GOOS == "windows" { // it cannot remove an open folder
		d.lock.Close()
	}
	err := os.RemoveAll(d.path)
	d.lock.Close()
	return err
}

// SyncFolder makes the entries of a folder durable if the system supports that.
func SyncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) { // a folder may be writable but not readable
		return nil
	}
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) { // some file systems do not support it
		err = nil
	}
	return errors.Join(err, d.Close())
}
