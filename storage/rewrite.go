package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Rewrite is a new file that is made beside another, to take its place. It is for one
// goroutine.
type Rewrite struct {
	f    *File // that is to be replaced
	dst  *File // nil when ended
	tmp  string
	made fs.FileInfo
}

// BeginRewrite begins a file that may take the place of this one later, under the
// exclusive lock that is held. The file stays as it is meanwhile, and may be changed.
// Generations of the new file are counted on from those of this one. There is at most
// one such file at a time; what another left is removed.
func (f *File) BeginRewrite() (*Rewrite, error) {
	if !f.write {
		return nil, fmt.Errorf("%s: %w", f.path, ErrReadOnly)
	}
	v, err := f.Snapshot()
	if err != nil {
		return nil, err
	}
	r, err := f.beginRewrite(besideSuffix)
	if err == nil {
		r.dst.after = v.generation
	}
	return r, errors.Join(err, v.Close())
}

func (f *File) beginRewrite(suffix string) (*Rewrite, error) {
	var info fs.FileInfo
	err := f.withHandle(func(h *handle) (err error) {
		info, err = h.file.Stat()
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &Rewrite{f: f, tmp: siblingPath(f.path, suffix)}
	if err := os.Remove(r.tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dst := &File{path: r.tmp, write: true, noSync: f.noSync, log: f.log}
	if dst.handle, err = f.newFile(r.tmp, info); err != nil {
		return nil, err
	}
	r.dst = dst
	if r.made, err = dst.handle.file.Stat(); err == nil {
		err = dst.handle.db.Update(writeFormat)
	}
	if err != nil {
		return nil, fmt.Errorf("rewriting %s: %w", f.path, errors.Join(err, r.Close()))
	}
	return r, nil
}

// File is the new file. It is closed by Close, and is that of the index after Commit.
func (r *Rewrite) File() *File { return r.dst }

// Commit puts the new file in the place of the old one, atomically. Views of the old
// one stay valid. After an error Close removes what was made; only if the error is
// [ErrOutcomeUnknown] may the new file be there, with what [File.Update] says of it.
func (r *Rewrite) Commit() error {
	f := r.f
	if err := f.lockWriter(); err != nil {
		return err
	}
	defer f.writer.Unlock()
	return r.commit(false)
}

// commit is Commit with f.writer held. keepLineage: the documents have the ordinals and
// the codec that they had.
func (r *Rewrite) commit(keepLineage bool) error {
	f, dst := r.f, r.dst
	gone := ""
	err := dst.handle.db.Sync()
	if err == nil {
		gone, err = putInPlace(r.tmp, f.path)
	}
	renamed := err == nil
	if err == nil {
		err = syncDir(f.path)
	} else if now, serr := os.Stat(f.path); serr == nil && os.SameFile(now, r.made) {
		renamed = true // a network file system can fail and do it
	}
	switch {
	case renamed && err != nil:
		f.handle.gone = gone
		_ = dst.Close()
		r.dst = nil
		return f.breakOff(fmt.Errorf("rewriting: %w", err))
	case err != nil:
		return fmt.Errorf("rewriting %s: %w", f.path, err)
	}
	r.dst = nil
	f.mu.Lock()
	stale := f.handle
	stale.gone = gone
	if keepLineage {
		stale.lineage.rewritten(&dst.handle.lineage)
	}
	f.handle = dst.handle // the open, locked file that now has our name
	f.mu.Unlock()
	return f.release(stale)
}

// Failed is what a change to the new file failed with, as it concerns the index, which
// stays: there is nothing unknown about that.
func (r *Rewrite) Failed(err error) error {
	if r.dst != nil && r.dst.broken != nil && errors.Is(err, ErrOutcomeUnknown) {
		err = r.dst.cause
	}
	return fmt.Errorf("rewriting %s: %w", r.f.path, err)
}

// Close removes the new file unless it was committed. It may be called twice.
func (r *Rewrite) Close() error {
	if r.dst == nil {
		return nil
	}
	err := r.dst.Close()
	r.dst = nil
	if rerr := os.Remove(r.tmp); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// Replace lets fill write a new file beside this one and then puts it in its
// place: atomically, with the lock held all along. Views of the old file stay
// valid. If fill fails, or the program dies, the old file stays. If only the last
// step fails, the error is [ErrOutcomeUnknown], with what [File.Update] says of it.
func (f *File) Replace(fill func(dst *File) error) error {
	if err := f.lockWriter(); err != nil {
		return err
	}
	defer f.writer.Unlock()
	r, err := f.beginRewrite(rewriteSuffix)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	v, err := f.Snapshot()
	if err != nil {
		return err
	}
	r.dst.after = v.generation - 1 // the first generation of the new file has the number of this one
	if err := v.Close(); err != nil {
		return err
	}
	if err := fill(r.dst); err != nil {
		return r.Failed(err)
	}
	return r.commit(true)
}

// sweepRewrite removes what a rewrite that was interrupted has left.
func (f *File) sweepRewrite(suffix string) error {
	left := siblingPath(f.path, suffix)
	switch err := os.Remove(left); {
	case err == nil:
		f.log.Info("removed an interrupted rewrite", "file", left)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENAMETOOLONG): // no file can have too long a name
		return fmt.Errorf("removing what an interrupted rewrite left: %w", err)
	}
	return nil
}
