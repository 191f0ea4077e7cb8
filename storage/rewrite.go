package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Replace lets fill write a new file beside this one and then puts it in its
// place: atomically, with the lock held all along. Views of the old file stay
// valid. If fill fails, or the program dies, the old file stays. If only the last
// step fails, the error is [ErrOutcomeUnknown], with what [File.Update] says of it.
func (f *File) Replace(fill func(dst *File) error) error {
	if !f.write {
		return fmt.Errorf("%s: %w", f.path, ErrReadOnly)
	}
	f.writer.Lock()
	defer f.writer.Unlock()
	if f.broken != nil {
		return f.broken
	}
	old, err := f.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.release(old) }() // read-only from here on: closing it loses nothing

	tmp := beside(f.path, rewriteSuffix)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	info, err := old.file.Stat()
	if err != nil {
		return err
	}
	dst := &File{path: tmp, write: true, log: f.log}
	if dst.h, err = f.newFile(tmp, info); err != nil {
		return err
	}
	made, err := dst.h.file.Stat()
	if err == nil {
		err = dst.h.db.Update(writeFormat)
	}
	if err == nil {
		err = fill(dst)
	}
	if err == nil {
		err = dst.h.db.Sync()
	}
	if err == nil {
		err = os.Rename(tmp, f.path)
	}
	renamed := err == nil
	if err == nil {
		err = syncDir(f.path)
	} else if now, serr := os.Stat(f.path); serr == nil && made != nil && os.SameFile(now, made) {
		renamed = true // a network file system can fail and do it
	}
	switch {
	case renamed && err != nil:
		_ = dst.Close()
		return f.breakOff(fmt.Errorf("rewriting: %w", err))
	case err != nil:
		if dst.broken != nil { // the outcome for the index is known: the old file stays
			err = dst.cause
		}
		_ = dst.Close()
		_ = os.Remove(tmp)
		return fmt.Errorf("rewriting %s: %w", f.path, err)
	}
	f.mu.Lock()
	stale := f.h
	stale.lineage.rewritten(&dst.h.lineage)
	f.h = dst.h // the open, locked file that now has our name
	f.mu.Unlock()
	return f.release(stale)
}
