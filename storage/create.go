package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Suffixes of temporary files, which follow the name of the index.
const (
	rewriteSuffix           = ".rewrite.tmp" // of File.Replace
	concurrentRewriteSuffix = ".beside.tmp"  // of File.BeginRewrite, during which the index can change
	firstSuffix             = ".first.tmp"   // of a new index, after a dash and a random number
)

// maxNameBytes is the maximum length in bytes of the name of a file.
const maxNameBytes = 255

// siblingPath returns path with a suffix. If the name would get too long, it is shortened, and a
// checksum of all of it is added.
func siblingPath(path, suffix string) string {
	dir, name := filepath.Split(path)
	if len(name)+len(suffix) > maxNameBytes {
		sum := fmt.Sprintf("-%08x", crc32.Checksum([]byte(name), layout.Castagnoli))
		cut := maxNameBytes - len(suffix) - len(sum)
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + sum
	}
	return dir + name + suffix
}

// errRaced means that another process has created, replaced or removed the file meanwhile.
var errRaced = errors.New("another process was first")

// createFile creates a new file at f.path. old, if not nil, is the file without content that it
// replaces, which the caller has locked. The frame is written and synced under a temporary name, so
// that the path never names an incomplete file.
func (f *File) createFile(old fs.FileInfo) (err error) {
	f.removeUnfinishedFirst(nil)
	tmp := siblingPath(f.path, fmt.Sprintf("-%08x%s", rand.Uint32(), firstSuffix))
	h, err := f.createTemp(tmp, old)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = h.close()
			_ = os.Remove(tmp)
		}
	}()
	if err := h.db.Update(writeFormat); err != nil {
		return &writeError{f.path, err}
	}
	if old != nil {
		_, err = renameOver(tmp, f.path) // removeReplaced removes an old file that is still open
	} else {
		err = renameNew(tmp, f.path)
	}
	// Another process has created the index, or removed the temporary file as a leftover.
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return errRaced
	} else if err != nil {
		return &writeError{f.path, err}
	}
	f.handle, f.created = h, old == nil
	return nil
}

// renameNew renames a file to a path that must not exist. Its error wraps [fs.ErrExist] if the path
// exists.
func renameNew(tmp, path string) error {
	err := files.RenameNew(tmp, path)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// A system that cannot do that in one step can create a second name.
	if err = os.Link(tmp, path); err == nil {
		if err = os.Remove(tmp); err != nil { // an index must have only one name
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}
	_, serr := os.Lstat(path)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || !errors.Is(serr, fs.ErrNotExist) {
		return err
	}
	return os.Rename(tmp, path) // a file system without links
}

// removeUnfinishedFirst removes the temporary files of new indexes whose creators died. A creator
// that is still active starts again. If same is not nil, only other names of that file are removed:
// its creator died before it could.
func (f *File) removeUnfinishedFirst(same fs.FileInfo) {
	for _, path := range randomlyNamed(f.path, firstSuffix) {
		if info, err := os.Lstat(path); same != nil && (err != nil || !os.SameFile(same, info)) {
			continue
		}
		if os.Remove(path) == nil {
			f.log.Info("removed the beginning of an interrupted build", "file", path)
		}
	}
}

// replaceEmpty replaces a file without content by a new index.
func (f *File) replaceEmpty(ctx context.Context, deadline time.Time) error {
	path, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return boltfile.WithPath(f.path, err)
	}
	old, err := files.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errRaced
	} else if err != nil {
		return boltfile.WithPath(path, err)
	}
	defer old.Close()
	if err := boltfile.Lock(ctx, old, true, deadline); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	info, err := old.Stat()
	if err != nil {
		return boltfile.WithPath(path, err)
	}
	named, err := os.Stat(path)
	if err != nil || !os.SameFile(info, named) || info.Size() > 0 && !isFirstWrite(old, info.Size()) {
		return errRaced
	}
	f.path = path
	return f.createFile(info)
}

// createTemp creates and opens a file at tmp. If old is not nil, the new file will replace it, and
// gets its owner and permissions before any content. Errors name f.path.
func (f *File) createTemp(tmp string, old fs.FileInfo) (*handle, error) {
	mode, expected := fs.FileMode(0o644), int64(0)
	if old != nil {
		mode, expected = 0o600, old.Size()
	}
	file, err := openFileAs(tmp, f.path, os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, &writeError{f.path, err}
	}
	if old != nil {
		err = f.copyOwnership(file, old)
	}
	var h *handle
	if err != nil {
		_ = file.Close()
	} else if h, err = f.lockAndMap(file, tmp, expected); err == nil {
		h.db.NoSync = f.noSync
		return h, nil
	} else if errors.Is(err, errRaced) {
		return nil, err
	}
	_ = os.Remove(tmp)
	return nil, &writeError{f.path, err}
}

// lockAndMap locks a new file and lets bbolt open it. Only this process knows its name, so that the lock
// is free. If the address space is short, mapFile closes the file, and the next attempt, with a
// smaller mapping, opens it again.
func (f *File) lockAndMap(file *os.File, tmp string, expected int64) (*handle, error) {
	for failedAttempts := 0; ; failedAttempts++ {
		if err := files.LockExclusive(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		h, err := openMapped(file, true, expected, failedAttempts)
		if !errors.Is(err, errMapTooLarge) {
			return h, err
		}
		file, err = openFileAs(tmp, f.path, 0, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errRaced // another process has removed it as a leftover
		} else if err != nil {
			return nil, err
		}
	}
}

// copyOwnership gives a new, empty file the owner and permissions of the file that it will replace. If this
// process may not change the owner, it stays the owner; if it may not set the group either, the group
// of the new file gets only those permissions that everybody has.
func (f *File) copyOwnership(file *os.File, old fs.FileInfo) error {
	mode := old.Mode().Perm()
	if n := linkCount(f.path, old); n > 1 {
		f.log.Warn("the index has several names (hard links); only this one refers to the new file",
			"index", f.path, "names", n)
	}
	if uid, gid, ok := fileOwner(old); ok {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		newUID, newGID, _ := fileOwner(info)
		if newUID != uid || newGID != gid {
			if err := file.Chown(uid, gid); errors.Is(err, fs.ErrPermission) {
				f.log.Warn("the owner of the index cannot be kept", "index", f.path,
					"owner", uid, "group", gid, "new_owner", newUID, "new_group", newGID)
				if newGID != gid && file.Chown(-1, gid) != nil {
					mode = mode&^0o070 | mode&0o007<<3&mode // group bits: those that others have, too
				}
			} else if err != nil {
				return err
			}
		}
	}
	return file.Chmod(mode)
}

// openFileAs opens the file at path for writing. Its errors show name, the path that the file will get.
func openFileAs(path, name string, flag int, mode os.FileMode) (*os.File, error) {
	f, err := files.OpenFileAs(path, name, os.O_RDWR|flag, mode)
	if pe, ok := err.(*fs.PathError); ok {
		pe.Path = name
	}
	return f, err
}
