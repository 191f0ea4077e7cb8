package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Rewrite is a new file that is written next to another and will replace it. It is for one
// goroutine.
type Rewrite struct {
	original *File // the file to replace
	newFile  *File // the new file, or nil after Commit or Close
	tmpPath  string
	newInfo  fs.FileInfo // of the new file
}

// BeginRewrite creates a file that may replace this one later, which is open for writing. Meanwhile
// this file can be changed. The generations of the new file continue the count of this one. There
// is at most one such file at a time: the leftover of an interrupted rewrite is removed.
func (f *File) BeginRewrite() (*Rewrite, error) {
	if !f.write {
		return nil, fmt.Errorf("%s: %w", f.path, ErrReadOnly)
	}
	v, err := f.Snapshot()
	if err != nil {
		return nil, err
	}
	r, err := f.beginRewrite(concurrentRewriteSuffix)
	if err == nil {
		r.newFile.minGeneration = v.generation
	}
	return r, errors.Join(err, v.Close())
}

// beginRewrite creates the new file, with the path of f and a suffix as its temporary name.
func (f *File) beginRewrite(suffix string) (*Rewrite, error) {
	var info fs.FileInfo
	err := f.withHandle(func(h *handle) (err error) {
		info, err = h.file.Stat()
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &Rewrite{original: f, tmpPath: siblingPath(f.path, suffix)}
	if err := os.Remove(r.tmpPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dst := &File{path: r.tmpPath, write: true, noSync: f.noSync, log: f.log}
	if dst.handle, err = f.createTemp(r.tmpPath, info); err != nil {
		return nil, err
	}
	r.newFile = dst
	if r.newInfo, err = dst.handle.file.Stat(); err == nil {
		err = dst.handle.db.Update(writeFormat)
	}
	if err != nil {
		return nil, fmt.Errorf("rewriting %s: %w", f.path, errors.Join(err, r.Close()))
	}
	return r, nil
}

// File returns the new file. Commit makes it the file of the index; Close closes it otherwise.
func (r *Rewrite) File() *File { return r.newFile }

// Commit replaces the old file by the new one, atomically. Snapshots of the old one stay valid.
// After an error Close removes the new file. Only after [ErrOutcomeUnknown] the index may be the
// new file; see [File.Update].
func (r *Rewrite) Commit() error {
	f := r.original
	if err := f.lockWriter(); err != nil {
		return err
	}
	defer f.writer.Unlock()
	const keepLineage = false
	return r.replaceOriginal(keepLineage)
}

// replaceOriginal is Commit for a caller that holds f.writer. keepLineage means that the documents
// have the same ordinals and codec as in the old file.
func (r *Rewrite) replaceOriginal(keepLineage bool) error {
	f, dst := r.original, r.newFile
	// Rename the new file to the name of the old one.
	removeLater := ""
	err := dst.handle.db.Sync()
	if err == nil {
		removeLater, err = renameOver(r.tmpPath, f.path)
	}
	renamed := err == nil
	if err == nil {
		err = syncDir(f.path)
	} else if current, serr := os.Stat(f.path); serr == nil && os.SameFile(current, r.newInfo) {
		renamed = true // a network file system may rename and report an error
	}
	// A rename that may not be durable leaves the outcome unknown.
	switch {
	case renamed && err != nil:
		f.handle.removeAtClose = removeLater
		_ = dst.Close()
		r.newFile = nil
		return f.refuseChanges(fmt.Errorf("rewriting: %w", err))
	case err != nil:
		return fmt.Errorf("rewriting %s: %w", f.path, err)
	}
	// Switch to the new file. The old one is closed with its last snapshot.
	r.newFile = nil
	f.mu.Lock()
	stale := f.handle
	stale.removeAtClose = removeLater
	if keepLineage {
		stale.lineage.passTo(&dst.handle.lineage)
	}
	f.handle = dst.handle // the open, locked file that has the path of the index now
	f.mu.Unlock()
	return f.release(stale)
}

// ToIndexError converts an error of a change to the new file into an error of the index. The index is
// unchanged, so that the result never wraps [ErrOutcomeUnknown].
func (r *Rewrite) ToIndexError(err error) error {
	if r.newFile != nil && r.newFile.broken != nil && errors.Is(err, ErrOutcomeUnknown) {
		err = r.newFile.cause
	}
	return fmt.Errorf("rewriting %s: %w", r.original.path, err)
}

// Close removes the new file unless it was committed. It may be called twice.
func (r *Rewrite) Close() error {
	if r.newFile == nil {
		return nil
	}
	err := r.newFile.Close()
	r.newFile = nil
	if rerr := os.Remove(r.tmpPath); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// Replace creates a new file, calls fill to write it, and then replaces this file by it:
// atomically, and with the lock held throughout. Snapshots of the old file stay valid. If fill
// fails, or the program dies, the old file stays. If only the last step fails, the error is
// [ErrOutcomeUnknown]; see [File.Update].
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
	r.newFile.minGeneration = v.generation - 1 // the first generation of the new file has the number of this one
	if err := v.Close(); err != nil {
		return err
	}
	if err := fill(r.newFile); err != nil {
		return r.ToIndexError(err)
	}
	const keepLineage = true
	return r.replaceOriginal(keepLineage)
}

// removeOldRewrite removes the file of an interrupted rewrite.
func (f *File) removeOldRewrite(suffix string) error {
	leftover := siblingPath(f.path, suffix)
	switch err := os.Remove(leftover); {
	case err == nil:
		f.log.Info("removed an interrupted rewrite", "file", leftover)
	// A name that is too long cannot be that of a file.
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("removing the file of an interrupted rewrite: %w", err)
	}
	return nil
}
