package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
)

// Folder is a store in a folder. Several processes may use it concurrently, also on several machines that share a file
// system with hard links.
type Folder struct {
	dir  string
	link func(from, to string) error // os.Link; tests replace it by one whose result is lost
}

// OpenFolder opens the store in a folder, which is created if it does not exist.
func OpenFolder(dir string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the folder of the store: %w", err)
	}
	return &Folder{dir, os.Link}, nil
}

// filePath returns the path of the file of an object.
func (f *Folder) filePath(name string) (string, error) {
	return filepath.Join(f.dir, filepath.FromSlash(name)), CheckName(name)
}

// putPrefix begins the names of temporary files that will become objects.
const putPrefix = ".put-"

// sameFile reports whether a name belongs to an open file.
func sameFile(open *os.File, name string) bool {
	a, openErr := open.Stat()
	b, err := os.Stat(name)
	return openErr == nil && err == nil && os.SameFile(a, b)
}

// Put implements [Store]. First the bytes are written and synced in a temporary file. Then a hard link gives the file
// the name of the object, which fails if the name is in use. Then the name is synced.
func (f *Folder) Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	file, err := f.filePath(name)
	if err != nil {
		return made, err
	}
	dir := filepath.Dir(file)
	tmp, err := f.writeTemporary(ctx, dir, r, size)
	if err != nil {
		return made, fmt.Errorf("object %s: %w: %w", name, ErrNotMade, err)
	}
	defer func() {
		_ = tmp.Close()
		removeErr := os.Remove(tmp.Name())
		if err != nil { // otherwise the object exists, and RemoveLeftovers removes its second name later
			err = errors.Join(err, removeErr)
		}
	}()
	err = f.link(tmp.Name(), file)
	switch {
	case errors.Is(err, fs.ErrExist) && sameFile(tmp, file):
		// A network file system has made the link, lost the answer, and tried again.
	case errors.Is(err, fs.ErrExist):
		return made, fmt.Errorf("%w: %s", ErrExists, name)
	case err != nil:
		return made, fmt.Errorf("object %s: %w", name, err)
	}
	return syncFolder(dir)
}

// writeTemporary writes size bytes of r to a temporary file, and syncs it.
func (f *Folder) writeTemporary(ctx context.Context, dir string, r io.Reader, size int64) (*os.File, error) {
	tmp, err := f.createTemporary(dir)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(tmp, &contextReader{ctx, io.LimitReader(r, size+1)})
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes came instead of the announced %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, tmp.Close(), os.Remove(tmp.Name()))
	}
	return tmp, nil
}

// createTemporary creates a temporary file in a folder. It creates and syncs the folder if that does not exist.
func (f *Folder) createTemporary(dir string) (*os.File, error) {
	tmp, err := os.CreateTemp(dir, putPrefix+"*")
	if !errors.Is(err, fs.ErrNotExist) {
		return tmp, err
	}
	if err := f.makeFolder(dir); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, putPrefix+"*")
}

// makeFolder creates a folder of the store, and syncs its parents up to the folder of the store.
func (f *Folder) makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for dir != f.dir {
		dir = filepath.Dir(dir)
		if err := files.SyncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// syncFolder makes the names in a folder durable, and returns the time of its last change. That is when the newest
// object appeared; the time of its file is that of the last write, which may be long before.
func syncFolder(dir string) (made time.Time, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return made, err
	}
	return info.ModTime(), files.SyncFolder(dir)
}

// Replace implements [Store].
func (f *Folder) Replace(ctx context.Context, name string, body []byte) (made time.Time, err error) {
	file, err := f.filePath(name)
	if err != nil {
		return made, err
	}
	dir := filepath.Dir(file)
	tmp, err := f.writeTemporary(ctx, dir, bytes.NewReader(body), int64(len(body)))
	if err == nil {
		if err = errors.Join(tmp.Close(), files.Rename(tmp.Name(), file)); err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}
	if err != nil {
		return made, fmt.Errorf("object %s: %w", name, err)
	}
	return syncFolder(dir)
}

// Get implements [Store].
func (f *Folder) Get(_ context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
	file, err := f.filePath(name)
	if err != nil {
		return nil, Entry{}, err
	}
	r, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Entry{}, fmt.Errorf("%w: %s", ErrNotFound, name)
	} else if err != nil {
		return nil, Entry{}, err
	}
	info, err := r.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return nil, Entry{}, errors.Join(err, r.Close())
	}
	from = max(from, 0)
	if remaining := max(info.Size()-from, 0); length < 0 || length > remaining {
		length = remaining
	}
	return &rangeReader{io.NewSectionReader(r, from, length), r}, Entry{name, info.Size(), info.ModTime()}, nil
}

// List implements [Store]. It reads only folders that can have such objects.
func (f *Folder) List(ctx context.Context, prefix, after string, limit int) (entries []Entry, err error) {
	top := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if top != "" {
		if err := CheckName(strings.TrimSuffix(top, "/")); err != nil {
			return nil, err
		}
	}
	err = f.appendObjects(ctx, top, prefix, after, limit, &entries)
	return entries, err
}

// appendObjects appends the objects in a folder of the store, in the order of their names. dir ends with a slash, or is
// "" for the folder of the store. Files that disappear meanwhile are ignored.
func (f *Folder) appendObjects(ctx context.Context, dir, prefix, after string, limit int, to *[]Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dirEntries, err := os.ReadDir(filepath.Join(f.dir, filepath.FromSlash(dir)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	type child struct {
		fs.DirEntry
		name string // of the object, or of the folder, which ends with a slash
	}
	var children []child
	for _, e := range dirEntries {
		name := dir + e.Name()
		matches := strings.HasPrefix(name, prefix) && name > after
		if e.IsDir() {
			// A folder is read if it can have matching objects.
			name += "/"
			matches = (strings.HasPrefix(name, prefix) || strings.HasPrefix(prefix, name)) &&
				(name > after || strings.HasPrefix(after, name))
		}
		if matches && !strings.HasPrefix(e.Name(), ".") {
			children = append(children, child{e, name})
		}
	}
	slices.SortFunc(children, func(a, b child) int { return strings.Compare(a.name, b.name) })
	for _, e := range children {
		if limit > 0 && len(*to) >= limit {
			return nil
		}
		if e.IsDir() {
			if err := f.appendObjects(ctx, e.name, prefix, after, limit, to); err != nil {
				return err
			}
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		*to = append(*to, Entry{e.name, info.Size(), info.ModTime()})
	}
	return nil
}

// RemoveLeftovers implements [Store]. Leftovers are the temporary files of a Put whose process was killed.
func (f *Folder) RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error) {
	err = filepath.WalkDir(f.dir, func(file string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && !e.IsDir() && strings.HasPrefix(e.Name(), putPrefix) {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil && info.ModTime().Before(before) {
				if err = os.Remove(file); err == nil {
					removed++
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // another process has removed it
			return nil
		}
		return err
	})
	return removed, err
}

// Delete implements [Store].
func (f *Folder) Delete(_ context.Context, name string) error {
	file, err := f.filePath(name)
	if err == nil {
		err = os.Remove(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
