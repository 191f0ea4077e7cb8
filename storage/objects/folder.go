package objects

import (
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

// Folder is a store in a folder. Several processes, and machines that share a file
// system with hard links, may use it at a time.
type Folder struct {
	dir  string
	link func(from, to string) error // os.Link; tests lose its answer
}

// OpenFolder makes the folder if it is not there.
func OpenFolder(dir string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &Folder{dir, os.Link}, nil
}

func (f *Folder) path(name string) (string, error) {
	return filepath.Join(f.dir, filepath.FromSlash(name)), CheckName(name)
}

// putPrefix is at the beginning of the names of files that are to become objects.
const putPrefix = ".put-"

// sameFile tells whether an open file has a name as well.
func sameFile(open *os.File, name string) bool {
	a, err := open.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(name)
	return err == nil && os.SameFile(a, b)
}

// Put implements [Store]. The object gets its name by a hard link, which fails if the
// name is taken.
func (f *Folder) Put(ctx context.Context, name string, r io.Reader, size int64) (made time.Time, err error) {
	file, err := f.path(name)
	if err != nil {
		return made, err
	}
	if err := f.makeFolder(filepath.Dir(file)); err != nil {
		return made, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), putPrefix+"*")
	if err != nil {
		return made, err
	}
	defer func() {
		_ = tmp.Close()
		if gone := os.Remove(tmp.Name()); err != nil { // else the object is there: RemoveLeftovers takes what stays
			err = errors.Join(err, gone)
		}
	}()
	n, err := io.Copy(tmp, &reader{ctx, io.LimitReader(r, size+1)})
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes came where %d were announced: %w", n, size, io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err == nil {
		err = f.link(tmp.Name(), file)
	}
	switch {
	case errors.Is(err, fs.ErrExist) && sameFile(tmp, file):
		// A network file system has made the link, lost the answer and asked again.
	case errors.Is(err, fs.ErrExist):
		return made, fmt.Errorf("%w: %s", ErrExists, name)
	case err != nil:
		return made, fmt.Errorf("object %s: %w", name, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return made, err
	}
	return info.ModTime(), files.SyncFolder(filepath.Dir(file))
}

// Replace implements [Store].
func (f *Folder) Replace(ctx context.Context, name string, body []byte) (made time.Time, err error) {
	file, err := f.path(name)
	if err != nil {
		return made, err
	}
	if err := f.makeFolder(filepath.Dir(file)); err != nil {
		return made, err
	}
	if err := files.WriteAtomic(ctx, file, func(w io.Writer) error { _, err := w.Write(body); return err }); err != nil {
		return made, fmt.Errorf("object %s: %w", name, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return made, err
	}
	return info.ModTime(), nil
}

// makeFolder makes a folder of the store, durable with its entries in those above.
func (f *Folder) makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
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

// Get implements [Store].
func (f *Folder) Get(_ context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
	file, err := f.path(name)
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
	if err != nil {
		return nil, Entry{}, errors.Join(err, r.Close())
	}
	if length < 0 {
		length = max(info.Size()-from, 0)
	}
	part := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(r, from, length), r}
	return part, Entry{name, info.Size(), info.ModTime()}, nil
}

// walk visits the files below a folder, those that are to become objects among them. What
// disappears meanwhile is passed over.
func (f *Folder) walk(ctx context.Context, top string, visit func(file string, info fs.FileInfo) error) error {
	return filepath.WalkDir(top, func(file string, e fs.DirEntry, err error) error {
		var info fs.FileInfo
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && e.IsDir():
			return nil
		case err == nil:
			info, err = e.Info()
		}
		if err == nil {
			err = visit(file, info)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// List implements [Store].
func (f *Folder) List(ctx context.Context, prefix, after string, limit int) ([]Entry, error) {
	var entries []Entry
	top := filepath.Join(f.dir, filepath.FromSlash(prefix[:strings.LastIndexByte(prefix, '/')+1]))
	err := f.walk(ctx, top, func(file string, info fs.FileInfo) error {
		name, err := filepath.Rel(f.dir, file)
		if name = filepath.ToSlash(name); err == nil && strings.HasPrefix(name, prefix) && name > after && !strings.HasPrefix(info.Name(), ".") {
			entries = append(entries, Entry{name, info.Size(), info.ModTime()})
		}
		return err
	})
	slices.SortFunc(entries, compareEntries)
	if limit > 0 && len(entries) > limit {
		entries = entries[:limit]
	}
	return entries, err
}

// RemoveLeftovers implements [Store]: files of a Put whose process was killed.
func (f *Folder) RemoveLeftovers(ctx context.Context, before time.Time) (removed int, err error) {
	err = f.walk(ctx, f.dir, func(file string, info fs.FileInfo) error {
		if !strings.HasPrefix(info.Name(), putPrefix) || !info.ModTime().Before(before) {
			return nil
		}
		err := os.Remove(file)
		if err == nil {
			removed++
		}
		return err
	})
	return removed, err
}

// Delete implements [Store].
func (f *Folder) Delete(_ context.Context, name string) error {
	file, err := f.path(name)
	if err == nil {
		err = os.Remove(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
