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

// Successor is a file that is written next to another and then takes its place. It is
// locked until then, or until it is discarded; the lock of a process that died is free.
type Successor struct {
	path string
	file *os.File
	done bool
}

// NewSuccessor begins a file that is to take the place of path, which need not
// be there. Until it does only its owner may read it.
func NewSuccessor(path string) (*Successor, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // the file is replaced, not a link to it
	} else if _, lerr := os.Lstat(path); lerr == nil {
		return nil, err // a link to nowhere
	}
	f, err := files.Claim(path, 0o600)
	if pe, ok := errors.AsType[*fs.PathError](err); ok { // the name is of this attempt alone
		err = &fs.PathError{Op: "create a file", Path: "in " + filepath.Dir(path), Err: pe.Err}
	}
	if err != nil {
		return nil, err
	}
	return &Successor{path: path, file: f}, nil
}

// SweepSuccessors removes the successors of path whose processes died. It fails
// silently: they are in nobody's way.
func SweepSuccessors(path string, log *slog.Logger) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, left := range files.Sweep(path) {
		log.Info("removed an interrupted backup", "file", left)
	}
}

// Name is the name that the file has now.
func (s *Successor) Name() string { return s.file.Name() }

// Fill writes a copy of what the view shows, and returns how long the file is
// and how much of it was written; free pages become holes.
func (s *Successor) Fill(ctx context.Context, v *Snapshot, progress func(done, total int64)) (size, written int64, err error) {
	at := int64(0)
	size, err = v.copyTo(ctx, copyTarget{
		write: func(b []byte) error {
			n, err := s.file.WriteAt(b, at)
			at += int64(n)
			written += int64(n)
			return err
		},
		skip: func(n int64) error {
			at += n
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

// Commit gives the file its mode and its name. It is durable afterwards, or that
// is [ErrOutcomeUnknown]: the file has its name, and may lose it when the power
// fails.
func (s *Successor) Commit(mode fs.FileMode) error {
	if err := errors.Join(os.Chmod(s.Name(), mode.Perm()), s.file.Sync()); err != nil {
		return errors.Join(err, s.Discard())
	}
	if runtime.GOOS == "windows" { // an open file keeps its name there
		if err := s.file.Close(); err != nil {
			return errors.Join(err, s.Discard())
		}
	}
	if _, err := putInPlace(s.Name(), s.path); err != nil { // what stays of the old one is swept by who writes the new one
		return errors.Join(err, s.Discard())
	}
	s.done = true
	_ = s.file.Close() // its content is synced
	if err := syncDir(s.path); err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return nil
}

// Discard removes the file if it was not committed. It may be called more than
// once.
func (s *Successor) Discard() error {
	if s.done {
		return nil
	}
	s.done = true
	err := os.Remove(s.Name()) // before the lock is let go
	cerr := s.file.Close()
	if err != nil { // where open files stay
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
