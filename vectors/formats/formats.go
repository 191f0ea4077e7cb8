// Package formats reads vectors and texts from Parquet and Arrow files, and from dataset folders of the
// Hugging Face library datasets. It is a separate module, so that programs that do not need it link
// nothing of it.
//
//	[Register]   makes packages vectors and encode, and so every command, read such files
//	[Open]       opens a file or folder with vectors
//	[Texts]      reads the texts of a file or folder
//
// A row is a document. Its vectors are a list of lists of float16, float32 or float64 numbers (of any
// length, or of a fixed one), in the column vectors, embeddings, docs or data, or in the only column of
// that kind. Its id is in the column _id or id, as text or an integer; without one it is the row number.
// All columns except the vectors are the payload, a JSON object. Texts are in the column text, titles in
// title.
package formats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

// Suffixes are those of files that are read.
var Suffixes = []string{".parquet", ".arrow", ".feather"}

// Register makes [vectors.Open] and [encode.Reader] read these formats. Call it once, when the program
// starts.
func Register() {
	vectors.RegisterFormat(vectors.Format{
		Name:     "Parquet and Arrow",
		Suffixes: Suffixes,
		IsFolder: isFolder,
		Open:     func(ctx context.Context, path string) (vectors.Source, error) { return Open(ctx, path) },
	})
	encode.RegisterFormat(encode.TextFormat{Suffixes: Suffixes, Folder: isFolder, Texts: Texts})
}

// Open opens a file of Parquet or Arrow (an IPC file, also known as Feather 2, or an IPC stream), or a
// folder of them: one that save_to_disk of the library datasets wrote, or the Parquet files of a split as
// on the Hugging Face hub (docs/formats.md).
//
// Open reads the lengths and ids of all documents; vectors are read later, in blocks. The memory has a
// block, the ids, and 4 bytes per document.
//
// Errors are [*vectors.FileError] and wrap [vectors.ErrFormat], [vectors.ErrShape],
// [vectors.ErrID], or those of ctx and of the operating system.
func Open(ctx context.Context, path string) (vectors.Source, error) {
	paths, err := filesAt(path)
	if err != nil {
		return nil, err
	}
	sources := make([]vectors.Source, 0, len(paths))
	closeAll := func() {
		for _, s := range sources {
			s.Close()
		}
	}
	for _, p := range paths {
		s, err := openFile(ctx, p, (*source).scanRows)
		if err != nil {
			closeAll()
			return nil, err
		}
		sources = append(sources, s)
	}
	if len(sources) == 1 {
		return sources[0], nil
	}
	s, err := vectors.Concat(sources...)
	if err != nil {
		closeAll()
	}
	return s, err
}

// filesAt returns the files at a path: the file itself, or those in a folder.
func filesAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, vectors.NewFileError(path, withoutPath(err))
	}
	if info.IsDir() {
		return folderFiles(path)
	}
	return []string{path}, nil
}

// openFile opens a file by its suffix, and calls prepare with it. A panic of the library becomes an error.
func openFile(ctx context.Context, path string, prepare func(*source, context.Context) error) (_ *source, err error) {
	s := &source{path: path}
	f, size, err := s.watch.Open(path)
	if errors.Is(err, files.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", vectors.ErrFormat, withoutPath(err))
	}
	if err != nil {
		return nil, vectors.NewFileError(path, withoutPath(err))
	}
	s.file = f
	err = guarded(func() error {
		if strings.EqualFold(filepath.Ext(path), ".parquet") {
			s.rows, err = openParquet(ctx, f)
		} else {
			s.rows, err = openArrow(ctx, f, size)
		}
		if err != nil {
			return err
		}
		return prepare(s, ctx)
	})
	if err != nil {
		f.Close()
		const noRow = -1
		return nil, s.toFileError(err, noRow)
	}
	return s, nil
}
