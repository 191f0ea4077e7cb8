package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Replace lets fill write a new file beside this one and then puts it in its
// place: atomically, with the lock held all along. Views of the old file stay
// valid. If fill fails, or the program dies, the old file stays.
func (f *File) Replace(fill func(dst *File) error) error {
	if !f.write {
		return fmt.Errorf("%s: %w", f.path, ErrReadOnly)
	}
	f.writer.Lock()
	defer f.writer.Unlock()
	old, err := f.acquire()
	if err != nil {
		return err
	}
	defer func() { _ = f.release(old) }() // read-only from here on: closing it loses nothing

	tmp := f.path + rewriteSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dst, err := Open(tmp, Options{Write: true, Create: true, Logger: f.log})
	if err != nil {
		return err
	}
	err = func() error {
		if err := fill(dst); err != nil {
			return err
		}
		if info, err := os.Stat(f.path); err == nil {
			if err := os.Chmod(tmp, info.Mode().Perm()); err != nil {
				return err
			}
		}
		if err := dst.h.db.Sync(); err != nil {
			return err
		}
		return os.Rename(tmp, f.path)
	}()
	if err != nil {
		_ = dst.Close()
		_ = os.Remove(tmp)
		return fmt.Errorf("rewriting %s: %w", f.path, err)
	}
	f.mu.Lock()
	stale := f.h
	f.h = dst.h // the open, locked file that now has our name
	f.mu.Unlock()
	return errors.Join(syncDir(f.path), f.release(stale))
}
