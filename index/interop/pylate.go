package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/torch"
)

// PyLate has a folder for each index. It has a folder that fast-plaid writes, and a dictionary from
// document numbers to ids.
const (
	pylateInside = "fast_plaid_index"
	pylateIDs    = "plaid_ids_to_documents_ids" // and .pkl or .sqlite
)

// enterPyLateFolder enters the folder that fast-plaid wrote, if this is one of PyLate.
func (x *Index) enterPyLateFolder() {
	inside := filepath.Join(x.Dir, pylateInside)
	if info, err := os.Stat(inside); err == nil && info.IsDir() && !x.folder.hasFile("metadata.json") {
		x.Dir, x.folder = inside, newFolder(inside)
	}
}

// idsFile has the ids of the documents, one per line.
const idsFile = "ids.txt"

// IDs returns the ids of the documents, or nil if the folder has none. They are in ids.txt, which
// an export writes, or in a dictionary of PyLate, which is in the folder of ColBERT's files or
// above the folder of fast-plaid's. "" stands for a document that PyLate has removed.
func (x *Index) IDs(ctx context.Context) ([]string, error) {
	lines := filepath.Join(x.openedDir, idsFile)
	ids, err := vectors.ReadIDs(ctx, lines)
	switch {
	case err == nil && len(ids) != len(x.DocLens):
		return nil, fmt.Errorf("%s: %w: %d ids for the %d documents of %s",
			lines, vectors.ErrID, len(ids), len(x.DocLens), x.openedDir)
	case !errors.Is(err, fs.ErrNotExist):
		return ids, err
	}
	// Look for a dictionary.
	above := ""
	if full, err := filepath.Abs(x.Dir); err == nil && filepath.Base(full) == pylateInside {
		above = ".."
	}
	name := ""
	for _, form := range []string{".pkl", ".sqlite"} {
		dict := filepath.Join(above, pylateIDs+form)
		if !x.folder.hasFile(dict) {
			continue
		}
		if name != "" {
			return nil, fmt.Errorf("index folder %s: %w: ids in %s and in %s: remove the older file, or give the ids",
				x.Dir, ErrUnsupported, name, dict)
		}
		name = dict
	}
	if name == "" {
		return nil, nil
	}
	if ids, err = x.readIDs(name); err != nil {
		return nil, fmt.Errorf("index folder %s: %s: %w; give the ids of the documents instead", x.Dir, name, err)
	}
	return ids, nil
}

// readIDs reads the ids from a dictionary of PyLate.
func (x *Index) readIDs(name string) ([]string, error) {
	ids := make([]string, len(x.DocLens))
	count := 0
	addID := func(key string, value any) error {
		n, err := strconv.Atoi(key)
		if err != nil || n < 0 || n >= len(ids) || ids[n] != "" {
			return fmt.Errorf("%w: an id for document %.40q, and there are %d", ErrBroken, key, len(ids))
		}
		ids[n] = fmt.Sprint(value)
		if err := vectors.CheckID(ids[n]); err != nil {
			return fmt.Errorf("%w: document %d: %w", ErrBroken, n, err)
		}
		count++
		return nil
	}
	file, size, err := x.folder.openFile(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if filepath.Ext(name) == ".pkl" {
		err = visitPickledDict(file, size, addID)
	} else if err = x.checkNoPendingChanges(name); err == nil {
		err = visitSQLiteDict(file, size, func(key string, value []byte) error {
			v, err := torch.StringOrInt(value)
			if err != nil {
				return fmt.Errorf("document %.40q: %w", key, err)
			}
			return addID(key, v)
		})
	}
	if err != nil {
		return nil, arrayError(err)
	}
	if removed := len(ids) - count; removed > 0 {
		x.addWarning("%d documents have no id in %s, because PyLate has removed them, and were skipped",
			removed, filepath.Base(name))
	}
	return ids, nil
}

// checkNoPendingChanges refuses a SQLite file with changes in a second file.
func (x *Index) checkNoPendingChanges(name string) error {
	for _, suffix := range []string{"-wal", "-journal"} {
		if info, err := os.Stat(filepath.Join(x.Dir, name+suffix)); err == nil && info.Size() > 0 {
			return fmt.Errorf("%w: changes wait in %s: end the program that uses the index",
				ErrUnsupported, filepath.Base(name)+suffix)
		}
	}
	return nil
}

// visitPickledDict calls visit for the entries of a pickled dictionary in a file of size bytes.
func visitPickledDict(r io.Reader, size int64, visit func(key string, value any) error) error {
	if size > torch.MaxDict {
		return fmt.Errorf("%w: %d bytes, at most %d are read", ErrUnsupported, size, torch.MaxDict)
	}
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return err
	}
	keys, values, err := torch.Dict(data)
	if err != nil {
		return err
	}
	for i, key := range keys {
		if err := visit(fmt.Sprint(key), values[i]); err != nil {
			return err
		}
	}
	return nil
}
