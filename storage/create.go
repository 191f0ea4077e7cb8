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

// Files that are prepared beside the index have its name and one of these.
const (
	rewriteSuffix = ".rewrite.tmp"
	besideSuffix  = ".beside.tmp" // a rewrite beside changes
	firstSuffix   = ".first.tmp"  // after a dash and a random number
)

// maxName is the length in bytes that a name in a folder may have.
const maxName = 255

// siblingPath names a file in the folder of path. Of a name that would get too long
// the beginning stays, and a checksum of it all.
func siblingPath(path, suffix string) string {
	dir, name := filepath.Split(path)
	if len(name)+len(suffix) > maxName {
		sum := fmt.Sprintf("-%08x", crc32.Checksum([]byte(name), layout.Castagnoli))
		cut := maxName - len(suffix) - len(sum)
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + sum
	}
	return dir + name + suffix
}

// errRaced: another process was first.
var errRaced = errors.New("another process was first")

// makeFile makes a new file at f.path, where there is none, or old, which has no
// content. All of its frame is written and synced under another name: at no
// moment does the path hold half of it. old, where given, must stay locked.
func (f *File) makeFile(old fs.FileInfo) (err error) {
	f.sweepFirst(nil)
	tmp := siblingPath(f.path, fmt.Sprintf("-%08x%s", rand.Uint32(), firstSuffix))
	h, err := f.newFile(tmp, old)
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
		_, err = putInPlace(tmp, f.path) // an empty file that could not be removed is swept one day
	} else {
		err = giveName(tmp, f.path)
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) { // made, or swept away, by another
		return errRaced
	} else if err != nil {
		return &writeError{f.path, err}
	}
	f.handle, f.created = h, old == nil
	return nil
}

// giveName renames a file to a name that no file has.
func giveName(tmp, path string) error {
	err := files.RenameNew(tmp, path)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err = os.Link(tmp, path); err == nil {
		if err = os.Remove(tmp); err != nil { // a second name of the index is not to stay
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}
	if _, serr := os.Lstat(path); errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || !errors.Is(serr, fs.ErrNotExist) {
		return err
	}
	return os.Rename(tmp, path) // a file system without links
}

// sweepFirst removes the beginnings of files that programs which died have left.
// One that another program is at work on it will begin again. Of a file that has
// its name already, only what is a second one of it goes.
func (f *File) sweepFirst(same fs.FileInfo) {
	for _, path := range randomlyNamed(f.path, firstSuffix) {
		if info, err := os.Lstat(path); same != nil && (err != nil || !os.SameFile(same, info)) {
			continue
		}
		if os.Remove(path) == nil {
			f.log.Info("removed the beginning of an interrupted build", "file", path)
		}
	}
}

// replaceEmpty makes a new file in the place of one without content.
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
	if named, err := os.Stat(path); err != nil || !os.SameFile(info, named) || info.Size() > 0 && !isFirst(old, info.Size()) {
		return errRaced
	}
	f.path = path
	return f.makeFile(info)
}

// newFile creates and opens a file at tmp that is to take the place of old: with
// the same owner and permissions before anything is in it. Errors call it f.path.
func (f *File) newFile(tmp string, old fs.FileInfo) (*handle, error) {
	mode, expected := fs.FileMode(0o644), int64(0)
	if old != nil {
		mode, expected = 0o600, old.Size()
	}
	file, err := openAs(tmp, f.path, os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, &writeError{f.path, err}
	}
	if old != nil {
		err = f.inherit(file, old)
	}
	var h *handle
	if err != nil {
		_ = file.Close()
	} else if h, err = f.mapNew(file, tmp, expected); err == nil {
		h.db.NoSync = f.noSync
		return h, nil
	} else if errors.Is(err, errRaced) {
		return nil, err
	}
	_ = os.Remove(tmp)
	return nil, &writeError{f.path, err}
}

// mapNew locks a new file, whose name nobody else has heard of, and gives it to bbolt. An
// attempt to map more than there is room for closes the file, and the next one, with less,
// opens it again.
func (f *File) mapNew(file *os.File, tmp string, expected int64) (*handle, error) {
	for smaller := 0; ; smaller++ {
		if err := files.LockExclusive(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		h, err := mapFile(file, true, expected, smaller)
		if !errors.Is(err, errSmaller) {
			return h, err
		}
		file, err = openAs(tmp, f.path, 0, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errRaced // swept away
		} else if err != nil {
			return nil, err
		}
	}
}

// inherit gives a new, empty file owner and permissions of the one whose place it
// is to take. Who may not give files away keeps them; then the group of the new
// file gets no more than everybody has.
func (f *File) inherit(file *os.File, old fs.FileInfo) error {
	mode := old.Mode().Perm()
	if n := linkCount(f.path, old); n > 1 {
		f.log.Warn("the index has more than one name; only this one is of the new file", "index", f.path, "names", n)
	}
	if uid, gid, ok := fileOwner(old); ok {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		u, g, _ := fileOwner(info)
		if u != uid || g != gid {
			if err := file.Chown(uid, gid); errors.Is(err, fs.ErrPermission) {
				f.log.Warn("the owner of the index cannot be kept", "index", f.path, "owner", uid, "group", gid, "new_owner", u, "new_group", g)
				if g != gid && file.Chown(-1, gid) != nil {
					mode = mode&^0o070 | mode&0o007<<3&mode
				}
			} else if err != nil {
				return err
			}
		}
	}
	return file.Chmod(mode)
}

// openAs opens a file for writing under another name than it has for now.
func openAs(path, name string, flag int, mode os.FileMode) (*os.File, error) {
	f, err := files.OpenFileAs(path, name, os.O_RDWR|flag, mode)
	if pe, ok := err.(*fs.PathError); ok {
		pe.Path = name
	}
	return f, err
}
