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
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Files that are prepared beside the index have its name and one of these.
const (
	rewriteSuffix = ".rewrite.tmp"
	besideSuffix  = ".beside.tmp" // a rewrite beside changes
	firstSuffix   = ".first.tmp"  // after a dash and a random number
)

// maxName is the length in bytes that a name in a folder may have.
const maxName = 255

// beside names a file in the folder of path. Of a name that would get too long
// the beginning stays, and a checksum of it all.
func beside(path, suffix string) string {
	dir, name := filepath.Split(path)
	if len(name)+len(suffix) > maxName {
		sum := fmt.Sprintf("-%08x", crc32.Checksum([]byte(name), castagnoli))
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

// first makes a new file at f.path, where there is none, or old, which has no
// content. All of its frame is written and synced under another name: at no
// moment does the path hold half of it. old, where given, must stay locked.
func (f *File) first(old fs.FileInfo) (err error) {
	f.sweepFirst(nil)
	tmp := beside(f.path, fmt.Sprintf("-%08x%s", rand.Uint32(), firstSuffix))
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
		return fmt.Errorf("writing %s: %w", f.path, err)
	}
	if old != nil {
		err = os.Rename(tmp, f.path)
	} else {
		err = giveName(tmp, f.path)
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) { // made, or swept away, by another
		return errRaced
	} else if err != nil {
		return fmt.Errorf("writing %s: %w", f.path, err)
	}
	f.h, f.created = h, old == nil
	return nil
}

// giveName renames a file to a name that no file has.
func giveName(tmp, path string) error {
	err := os.Link(tmp, path)
	if err == nil {
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
	dir, prefix := filepath.Split(strings.TrimSuffix(beside(f.path, "-00000000"+firstSuffix), "00000000"+firstSuffix))
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // what follows will say why
	}
	for _, e := range entries {
		name := e.Name()
		if len(name) == len(prefix)+8+len(firstSuffix) && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, firstSuffix) && e.Type().IsRegular() {
			if info, err := e.Info(); same != nil && (err != nil || !os.SameFile(same, info)) {
				continue
			}
			if os.Remove(filepath.Join(dir, name)) == nil {
				f.log.Info("removed the beginning of an interrupted build", "file", filepath.Join(dir, name))
			}
		}
	}
}

// replaceEmpty makes a new file in the place of one without content.
func (f *File) replaceEmpty(ctx context.Context, deadline time.Time) error {
	path, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return opening(f.path, err)
	}
	old, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errRaced
	} else if err != nil {
		return opening(path, err)
	}
	defer old.Close()
	if err := lock(ctx, old, true, deadline); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	info, err := old.Stat()
	if err != nil {
		return opening(path, err)
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(info, named) || info.Size() > 0 && !isFirst(old, info.Size()) {
		return errRaced
	}
	f.path = path
	return f.first(info)
}

// newFile creates and opens a file at tmp that is to take the place of old: with
// the same owner and permissions before anything is in it. Errors call it f.path.
func (f *File) newFile(tmp string, old fs.FileInfo) (*handle, error) {
	mode := uint32(0o644)
	if old != nil {
		mode = 0o600
	}
	file, err := openAs(tmp, f.path, syscall.O_CREAT|syscall.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", f.path, err)
	}
	if old != nil {
		if err = f.inherit(file, old); err != nil {
			_ = file.Close()
		}
	}
	expected := int64(0)
	if old != nil {
		expected = old.Size()
	}
	for smaller := 0; err == nil; smaller++ {
		h, merr := mapFile(file, true, expected, smaller) // bbolt locks it; nobody else has heard of the name
		if merr == nil {
			return h, nil
		}
		if err = merr; errors.Is(err, errSmaller) {
			if file, err = openAs(tmp, f.path, 0, 0); errors.Is(err, fs.ErrNotExist) {
				return nil, errRaced // swept away
			}
		}
	}
	_ = os.Remove(tmp)
	return nil, fmt.Errorf("writing %s: %w", f.path, err)
}

// inherit gives a new, empty file owner and permissions of the one whose place it
// is to take. Who may not give files away keeps them; then the group of the new
// file gets no more than everybody has.
func (f *File) inherit(file *os.File, old fs.FileInfo) error {
	mode := old.Mode().Perm()
	if n := links(old); n > 1 {
		f.log.Warn("the index has more than one name; only this one is of the new file", "index", f.path, "names", n)
	}
	if uid, gid, ok := owner(old); ok {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		u, g, _ := owner(info)
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
func openAs(path, name string, flag int, mode uint32) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC|flag, mode)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}
