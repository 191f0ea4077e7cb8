package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/torch"
)

// PyLate keeps the index of fast-plaid in a folder of its own, in that of an index by name, and
// beside it the ids of the documents by their numbers.
const (
	pylateInside = "fast_plaid_index"
	pylateIDs    = "plaid_ids_to_documents_ids.sqlite"
)

// enterPyLate goes to the folder that the engine of PyLate wrote.
func (x *Index) enterPyLate() {
	inside := filepath.Join(x.Dir, pylateInside)
	if info, err := os.Stat(inside); err == nil && info.IsDir() && !x.folder.hasFile("metadata.json") {
		x.Dir, x.folder = inside, newFolder(inside)
	}
}

// readPyLateIDs reads the ids of PyLate, where it keeps some: beside the files of ColBERT's engine,
// or above those of fast-plaid. Documents without one are those that PyLate has removed.
func (x *Index) readPyLateIDs() error {
	name := pylateIDs
	if full, err := filepath.Abs(x.Dir); err == nil && filepath.Base(full) == pylateInside {
		name = filepath.Join("..", pylateIDs)
	}
	if !x.folder.hasFile(name) {
		return nil
	}
	for _, beside := range []string{"-wal", "-journal"} {
		if info, err := os.Stat(filepath.Join(x.Dir, name+beside)); err == nil && info.Size() > 0 {
			return fmt.Errorf("%w: changes wait in %s: end the program that uses the index, or give the ids as a file", ErrUnsupported, pylateIDs+beside)
		}
	}
	file, size, err := x.folder.openFile(name)
	if err != nil {
		return err
	}
	defer file.Close()
	ids := make([]string, len(x.DocLens))
	named := 0
	err = eachDictRow(file, size, func(key string, value []byte) error {
		n, err := strconv.Atoi(key)
		if err != nil || n < 0 || n >= len(ids) || ids[n] != "" {
			return fmt.Errorf("%w: an id for document %.40q, and there are %d", ErrBroken, key, len(ids))
		}
		v, err := torch.Plain(value)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, arrayFault(err))
		}
		ids[n] = fmt.Sprint(v)
		if err := vectors.CheckID(ids[n]); err != nil {
			return fmt.Errorf("%w: document %d: %w", ErrBroken, n, err)
		}
		named++
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", pylateIDs, err)
	}
	if removed := len(ids) - named; removed > 0 {
		x.warnf("%d documents have no id in %s, since PyLate has removed them, and were left out", removed, pylateIDs)
	}
	x.IDs = ids
	return nil
}
