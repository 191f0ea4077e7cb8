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
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
)

// Successor is a file that is written beside another and then takes its place.
// Its name is the other's with an ending that [NewSuccessor] knows, and it is
// locked as long as its process lives.
type Successor struct {
	path, tmp string
	file      *os.File
	done      bool
}

// successorMark and successorEnd are around a random number after the name of
// the file that a successor is for.
const (
	successorMark = ".backup-"
	successorEnd  = ".tmp"
)

// longestName leaves room for the rest of a successor's name.
const longestName = 200

// NewSuccessor begins a file that is to take the place of path, which need not
// be there.
func NewSuccessor(path string) (*Successor, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // the file is replaced, not a link to it
	} else if _, lerr := os.Lstat(path); lerr == nil {
		return nil, err // a link to nowhere
	}
	dir, prefix := successorsOf(path)
	for {
		f, err := os.CreateTemp(dir, prefix+"*"+successorEnd)
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) { // the name is of this attempt alone
				err = &fs.PathError{Op: "create a file", Path: "in " + dir, Err: pe.Err}
			}
			return nil, err
		}
		s := &Successor{path: path, tmp: f.Name(), file: f}
		err = files.LockShared(f)
		if err == nil {
			var mine, named fs.FileInfo
			mine, err = f.Stat()
			if err == nil {
				if named, err = os.Lstat(s.tmp); err == nil && os.SameFile(mine, named) {
					return s, nil
				}
			}
		}
		// Another process may have swept it between creation and lock.
		if !errors.Is(err, files.ErrLocked) && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, s.Discard())
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// successorsOf is the folder of a file's successors and how their names begin.
func successorsOf(path string) (dir, prefix string) {
	dir, base := filepath.Dir(path), filepath.Base(path)
	if len(base) > longestName {
		base = strings.ToValidUTF8(base[:longestName], "")
	}
	return dir, strings.ReplaceAll(base, "*", "_") + successorMark // * means something to CreateTemp
}

// SweepSuccessors removes the successors of path whose processes died. It fails
// silently: they are in nobody's way.
func SweepSuccessors(path string, log *slog.Logger) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir, prefix := successorsOf(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		number, ends := strings.CutSuffix(number, successorEnd)
		if !ok || !ends || strings.Trim(number, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, err := files.OpenFile(path, os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		if files.LockExclusive(f) == nil && os.Remove(path) == nil {
			log.Info("removed an interrupted backup", "file", path)
		}
		_ = f.Close()
	}
}

// Name is the name that the file has now.
func (s *Successor) Name() string { return s.tmp }

// Fill writes a copy of what the view shows, and returns how long the file is
// and how much of it was written; free pages become holes.
func (s *Successor) Fill(ctx context.Context, v *View, progress func(done, total int64)) (size, written int64, err error) {
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
	if err := errors.Join(os.Chmod(s.tmp, mode.Perm()), s.file.Sync()); err != nil {
		return errors.Join(err, s.Discard())
	}
	if runtime.GOOS == "windows" { // an open file keeps its name there
		if err := s.file.Close(); err != nil {
			return errors.Join(err, s.Discard())
		}
	}
	if _, err := putInPlace(s.tmp, s.path); err != nil { // what stays of the old one is swept by who writes the new one
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
	err := os.Remove(s.tmp) // before the lock is let go
	cerr := s.file.Close()
	if err != nil { // where open files stay
		err = os.Remove(s.tmp)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if errors.Is(cerr, os.ErrClosed) {
		cerr = nil
	}
	return errors.Join(err, cerr)
}
