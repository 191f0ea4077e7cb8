package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/plaid-ir/plaid/internal/files"
)

// Successor is a new file that is written next to another and then replaces it. It is locked
// until it is committed or discarded. When its process dies, the lock is released, which shows
// [RemoveAbandonedSuccessors] that the file can be removed.
type Successor struct {
	path string
	file *os.File
	done bool
}

// NewSuccessor creates a file that will replace path, which need not exist. Until then only its
// owner may read it.
func NewSuccessor(path string) (*Successor, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // the file is replaced, not a link to it
	} else if _, lerr := os.Lstat(path); lerr == nil {
		return nil, err // a link to nowhere
	}
	f, err := files.CreatePartial(path, 0o600)
	if pe, ok := errors.AsType[*fs.PathError](err); ok { // the temporary name would not help the user
		err = &fs.PathError{Op: "create a file", Path: "in " + filepath.Dir(path), Err: pe.Err}
	}
	if err != nil {
		return nil, err
	}
	return &Successor{path: path, file: f}, nil
}

// RemoveAbandonedSuccessors removes the successors of path whose processes died. It ignores errors, since
// such files do no harm.
func RemoveAbandonedSuccessors(path string, log *slog.Logger) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, name := range files.RemoveLeftovers(path) {
		log.Info("removed an interrupted backup", "file", name)
	}
}

// Name returns the current, temporary name of the file.
func (s *Successor) Name() string { return s.file.Name() }

// WriteSnapshot writes a copy of the snapshot. It returns the size of the file, and the number of bytes
// written: free pages become holes.
func (s *Successor) WriteSnapshot(
	ctx context.Context, v *Snapshot, progress func(done, total int64),
) (size, written int64, err error) {
	offset := int64(0)
	size, err = v.copyTo(ctx, copyTarget{
		write: func(b []byte) error {
			n, err := s.file.WriteAt(b, offset)
			offset += int64(n)
			written += int64(n)
			return err
		},
		skip: func(n int64) error {
			offset += n
			return nil
		},
	}, progress)
	if err != nil {
		return 0, written, err
	}
	if err := errors.Join(s.file.Truncate(size), s.file.Sync()); err != nil {
		return 0, written, fmt.Errorf("writing a copy of %s: %w", v.file.path, err)
	}
	return size, written, nil
}

// Commit gives the file its mode and its final name, durably. After [ErrOutcomeUnknown] the file
// has its name but may lose it if the power fails.
func (s *Successor) Commit(mode fs.FileMode) error {
	if err := errors.Join(os.Chmod(s.Name(), mode.Perm()), s.file.Sync()); err != nil {
		return errors.Join(err, s.Discard())
	}
	if runtime.GOOS == "windows" { // an open file keeps its name there
		if err := s.file.Close(); err != nil {
			return errors.Join(err, s.Discard())
		}
	}
	// An old file that cannot be removed yet is removed when the new one is opened for writing.
	if _, err := renameOver(s.Name(), s.path); err != nil {
		return errors.Join(err, s.Discard())
	}
	s.done = true
	_ = s.file.Close() // its content is synced
	if err := syncDir(s.path); err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return nil
}

// Discard removes the file unless it was committed. It may be called more than once.
func (s *Successor) Discard() error {
	if s.done {
		return nil
	}
	s.done = true
	err := os.Remove(s.Name()) // before the lock is released
	cerr := s.file.Close()
	if err != nil { // Windows does not remove an open file
		err = os.Remove(s.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if errors.Is(cerr, os.ErrClosed) {
		cerr = nil
	}
	return errors.Join(err, cerr)
}
