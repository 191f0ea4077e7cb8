// Package formats lets plaid read vectors and texts from Parquet and Arrow files, and from
// the dataset folders of the Hugging Face library datasets. It is a module of its own, so
// that programs without such files link nothing of it.
//
//	[Register]   packages vectors and encode, and so every command, read them by their suffix
//	[Open]       opens one with vectors
//	[Texts]      reads the texts of one
//
// A row is a document. Its vectors are a list of lists of float16, float32 or float64
// numbers (of any length, or of a fixed one), in the column vectors, embeddings, docs or
// data, or in the only one of that kind; its id is in the column _id or id, text or whole
// numbers, and without one it is the row number. All columns but the vectors come back
// with hits, as a JSON object. Texts are in the column text, titles in title.
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

// Suffixes of files that are read.
var Suffixes = []string{".parquet", ".arrow", ".feather"}

// Register lets [vectors.Open] and [encode.Reader] read these formats. It is called once, when a program
// begins.
func Register() {
	vectors.RegisterFormat(vectors.Format{
		Name: "Parquet and Arrow", Suffixes: Suffixes, Folder: isFolder,
		Open: func(ctx context.Context, path string) (vectors.Source, error) { return Open(ctx, path) },
	})
	encode.RegisterFormat(encode.TextFormat{Suffixes: Suffixes, Folder: isFolder, Texts: Texts})
}

// Open opens a file of Parquet or Arrow (an IPC file, also known as Feather 2, or an IPC
// stream), or a folder of them: what save_to_disk of the library datasets wrote, or the
// Parquet files of a split as the Hugging Face hub has them (docs/formats.md).
//
// Opening reads the lengths and ids of all documents; the vectors are read again in
// blocks when they are asked for. In memory are a block, the ids, and 4 bytes a document.
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
		s, err := openFile(ctx, p, (*source).scan)
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

// filesAt are the files of a path: itself, or those of a folder.
func filesAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, vectors.NewFileError(path, cause(err))
	}
	if info.IsDir() {
		return filesOf(path)
	}
	return []string{path}, nil
}

// openFile opens one file by its suffix, and lets begin read what it wants first.
func openFile(ctx context.Context, path string, begin func(*source, context.Context) error) (_ *source, err error) {
	s := &source{path: path}
	f, size, err := s.watch.Open(path)
	if errors.Is(err, files.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", vectors.ErrFormat, cause(err))
	}
	if err != nil {
		return nil, vectors.NewFileError(path, cause(err))
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
		return begin(s, ctx)
	})
	if err != nil {
		f.Close()
		return nil, s.fault(err, -1)
	}
	return s, nil
}
