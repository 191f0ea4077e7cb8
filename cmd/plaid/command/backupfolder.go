package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/collection"
	collections "github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

// Files of a collection in a folder of plaid serve; see docs/serving.md.
const (
	collectionConfig = "collection.json"
	collectionIndex  = "index.plaid"
)

// findCollections returns the names of the collections in a folder of plaid serve, including
// damaged ones. It returns none for any other folder.
func findCollections(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if collection.CheckName(e.Name()) == nil && collections.IsCollection(filepath.Join(dir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// folderBackup is what `plaid backup --json` prints for a folder.
type folderBackup struct {
	Path        string                         `json:"path"`
	Copy        string                         `json:"copy"`
	Collections map[string]*index.BackupReport `json:"collections"` // null for a collection without documents
	Verified    string                         `json:"verified"`
}

// backupFolder copies the collections of a folder one after another. Collections that only the copy
// has stay there. A collection that cannot be copied leaves its copy as it was, and the others are
// copied nevertheless.
func (a *app) backupFolder(ctx context.Context, from, to string, names []string, o *index.BackupOptions) error {
	switch inside, err := isInside(to, from); {
	case err != nil:
		return err
	case inside:
		return fmt.Errorf("%w: %s lies in %s", index.ErrSameFile, to, from)
	}
	rep := folderBackup{
		Path:        from,
		Copy:        to,
		Collections: map[string]*index.BackupReport{},
		Verified:    o.Check.String(),
	}
	var text bytes.Buffer
	var faults []error
	for _, name := range names {
		dir := filepath.Join(to, name)
		r, err := a.backupCollection(ctx, filepath.Join(from, name), dir, o)
		if err != nil {
			faults = append(faults, fmt.Errorf("collection %q: %w", name, err))
			// The other collections will fail in the same way.
			if ctx.Err() != nil || errors.Is(err, storage.ErrLocked) {
				break
			}
			continue
		}
		rep.Collections[name] = r
		if r == nil {
			fmt.Fprintf(&text, "%s: no documents\n", out.TablePath(dir))
		} else {
			text.WriteString(backupText(dir, r, o.Check))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w; %d of %d are copied", errors.Join(faults...), len(rep.Collections), len(names))
	}
	return a.report(rep, func(b *bytes.Buffer) { b.Write(text.Bytes()) })
}

// backupCollection copies the folder of a collection. The report is nil for a collection that has
// never had documents. If the index is gone but its copy exists, it was lost or was deleted and
// declared again: that is an error, since the copy may be all that remains.
func (a *app) backupCollection(
	ctx context.Context, from, to string, o *index.BackupOptions,
) (r *index.BackupReport, err error) {
	if err := os.MkdirAll(to, 0o777); err != nil {
		return nil, err
	}
	source, target, opened := filepath.Join(from, collectionIndex), filepath.Join(to, collectionIndex), false
	err = a.open(ctx, source, false, func(ix *index.Index) (err error) {
		opened = true
		r, err = ix.BackupTo(ctx, target, o)
		return err
	})
	if !opened && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrUnfinished)) {
		switch _, serr := os.Stat(target); {
		case serr == nil:
			return nil, fmt.Errorf("%w: the index is not there, and the copy has one, which is kept; if it was "+
				"emptied on purpose, delete %s", err, target)
		case !errors.Is(serr, fs.ErrNotExist):
			return nil, serr
		}
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return r, copyFile(ctx, filepath.Join(from, collectionConfig), filepath.Join(to, collectionConfig))
}

// isInside reports whether a path is a folder or lies in it, under any name. The end of the path
// need not exist yet.
func isInside(path, dir string) (bool, error) {
	folder, err := os.Stat(dir)
	if err != nil {
		return false, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return false, err
	}
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			path = real
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path {
			return false, err
		}
		path = filepath.Dir(path)
	}
	for {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, folder) {
			return true, nil
		}
		if filepath.Dir(path) == path {
			return false, nil
		}
		path = filepath.Dir(path)
	}
}

// copyFile copies a small file, so that the copy is complete or absent.
func copyFile(ctx context.Context, from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return files.WriteAtomic(ctx, to, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
