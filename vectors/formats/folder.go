package formats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/vectors"
)

// stateFile is a file in a folder that save_to_disk of datasets wrote. It lists the files with the rows, in
// order.
const stateFile = "state.json"

// isFolder reports whether a folder has files of these formats.
func isFolder(path string) bool {
	_, err := folderFiles(path)
	return !errors.Is(err, errNothing)
}

var errNothing = errors.New("no files of Parquet or Arrow")

// folderFiles returns the files of a dataset folder, in the order of their rows.
func folderFiles(path string) ([]string, error) {
	// A folder of save_to_disk.
	text, err := os.ReadFile(filepath.Join(path, stateFile))
	if err == nil {
		return namedFiles(path, text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, vectors.NewFileError(path, withoutPath(err))
	}
	if _, err := os.Stat(filepath.Join(path, "dataset_dict.json")); err == nil {
		return nil, vectors.NewFileError(path, fmt.Errorf("%w: it holds several datasets: name the folder of one (%s)",
			vectors.ErrShape, strings.Join(foldersIn(path), ", ")))
	}
	// A folder of the hub: files in it, or in its folder data.
	for _, dir := range []string{path, filepath.Join(path, "data")} {
		var found []string
		for _, suffix := range Suffixes {
			names, err := filepath.Glob(filepath.Join(escaped(dir), "*"+suffix))
			if err != nil {
				return nil, vectors.NewFileError(path, err)
			}
			found = append(found, names...)
		}
		if len(found) == 0 {
			continue
		}
		slices.Sort(found)
		vectors.SortNumbered(found) // part-2 before part-10
		if splits := splitsOf(found); len(splits) > 1 {
			return nil, vectors.NewFileError(path, fmt.Errorf("%w: it holds the splits %s: give the files of one",
				vectors.ErrShape, strings.Join(splits, ", ")))
		}
		return found, nil
	}
	return nil, vectors.NewFileError(path, fmt.Errorf("%w: %w", vectors.ErrFormat, errNothing))
}

// namedFiles returns the files that state.json lists. They must be in the same folder.
func namedFiles(path string, text []byte) ([]string, error) {
	var state struct {
		Files []struct {
			Name string `json:"filename"`
		} `json:"_data_files"`
	}
	name := filepath.Join(path, stateFile)
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, vectors.NewFileError(name, fmt.Errorf("%w: %w", vectors.ErrFormat, err))
	}
	var paths []string
	for _, f := range state.Files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) {
			return nil, vectors.NewFileError(name, fmt.Errorf("%w: %q is no file beside it", vectors.ErrFormat, f.Name))
		}
		paths = append(paths, filepath.Join(path, f.Name))
	}
	if len(paths) == 0 {
		return nil, vectors.NewFileError(name, fmt.Errorf("%w: it names no files", vectors.ErrFormat))
	}
	return paths, nil
}

// splitsOf returns the distinct splits in names such as train-00000-of-00002.parquet.
func splitsOf(paths []string) (splits []string) {
	for _, p := range paths {
		split, _, _ := strings.Cut(filepath.Base(p), "-")
		split = strings.TrimSuffix(split, filepath.Ext(split))
		if slices.Contains([]string{"train", "test", "validation", "dev"}, split) && !slices.Contains(splits, split) {
			splits = append(splits, split)
		}
	}
	return splits
}

// foldersIn returns the names of the folders in a folder.
func foldersIn(path string) (names []string) {
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// escaped escapes a path for use in a pattern.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
