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

	"github.com/plaid-ir/plaid/internal/atomicfile"
)

// Folder is a store in a folder. Several processes, and machines that share a file
// system with hard links, may use it at a time.
type Folder struct{ dir string }

// OpenFolder makes the folder if it is not there.
func OpenFolder(dir string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &Folder{dir}, nil
}

func (f *Folder) path(name string) (string, error) {
	return filepath.Join(f.dir, filepath.FromSlash(name)), CheckName(name)
}

// Put implements [Store]. The object gets its name by a hard link, which fails if the
// name is taken.
func (f *Folder) Put(ctx context.Context, name string, r io.Reader, size int64) (err error) {
	file, err := f.path(name)
	if err != nil {
		return err
	}
	if err := f.makeFolder(filepath.Dir(file)); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".put-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = tmp.Close()
		err = errors.Join(err, os.Remove(tmp.Name()))
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
		err = os.Link(tmp.Name(), file)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %s", ErrExists, name)
	case err != nil:
		return fmt.Errorf("object %s: %w", name, err)
	}
	return atomicfile.SyncFolder(filepath.Dir(file))
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
		if err := atomicfile.SyncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// Get implements [Store].
func (f *Folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	file, err := f.path(name)
	if err != nil {
		return nil, err
	}
	r, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// List implements [Store].
func (f *Folder) List(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	at := filepath.Join(f.dir, filepath.FromSlash(prefix[:strings.LastIndexByte(prefix, '/')+1]))
	err := filepath.WalkDir(at, func(file string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case e.IsDir() || strings.HasPrefix(e.Name(), "."):
			return nil
		}
		name, err := filepath.Rel(f.dir, file)
		if name = filepath.ToSlash(name); err == nil && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
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
