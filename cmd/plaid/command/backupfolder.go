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

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/atomicfile"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/server/collection"
	"github.com/plaid-ir/plaid/storage"
)

// The files of a collection in a folder of plaid serve; see docs/collections.md.
const (
	collectionConfig = "collection.json"
	collectionIndex  = "index.plaid"
)

// collectionsOf are the names of the collections in a folder of plaid serve; none of what is
// something else.
func collectionsOf(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, serr := os.Stat(filepath.Join(dir, e.Name(), collectionConfig)); serr == nil && collection.CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// folderBackup is what `plaid backup --json` prints of a folder.
type folderBackup struct {
	Path        string                         `json:"path"`
	Copy        string                         `json:"copy"`
	Collections map[string]*index.BackupReport `json:"collections"` // null: without documents
	Verified    string                         `json:"verified"`
}

// backupFolder copies each collection of a folder, one after another, each as it is at its
// moment. What a copy has beside them stays.
func (a *app) backupFolder(ctx context.Context, from, to string, names []string, o *index.BackupOptions) error {
	if rel, err := filepath.Rel(from, to); err == nil && (rel == "." || filepath.IsLocal(rel)) {
		return fmt.Errorf("%w: %s lies in %s", index.ErrSameFile, to, from)
	}
	rep := folderBackup{Path: from, Copy: to, Collections: map[string]*index.BackupReport{}, Verified: o.Check.String()}
	var text bytes.Buffer
	for _, name := range names {
		in, dir := filepath.Join(from, name), filepath.Join(to, name)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		var r *index.BackupReport
		err := a.open(ctx, filepath.Join(in, collectionIndex), false, func(ix *index.Index) (err error) {
			r, err = ix.BackupTo(ctx, filepath.Join(dir, collectionIndex), o)
			return err
		})
		empty := errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrUnfinished)
		if empty {
			err = os.Remove(filepath.Join(dir, collectionIndex)) // of a collection that had some, once
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err == nil {
			err = copyFile(ctx, filepath.Join(in, collectionConfig), filepath.Join(dir, collectionConfig))
		}
		if err != nil {
			return fmt.Errorf("collection %q: %w; %d of %d are copied", name, err, len(rep.Collections), len(names))
		}
		rep.Collections[name] = r
		if empty {
			fmt.Fprintf(&text, "%s: no documents\n", out.Path(dir))
		} else {
			text.WriteString(backupText(dir, r, o.Check))
		}
	}
	return a.report(rep, func(b *bytes.Buffer) { b.Write(text.Bytes()) })
}

// copyFile copies a small file so that it is there as a whole or not at all.
func copyFile(ctx context.Context, from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return atomicfile.Write(ctx, to, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
