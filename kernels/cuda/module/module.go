// Package module embeds the compiled device code of the families of kernels, which src/build.sh
// builds. The linker keeps only the families that a program refers to.
package module

import (
	"embed"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// The device code: FAMILY_ARCH.cubin.gz and FAMILY_80.ptx.gz.
var (
	//go:embed plaid_*.gz
	Plaid embed.FS // compressed tokens, and builds
	//go:embed dense_*.gz
	Dense embed.FS // plain token vectors
	//go:embed encoder_*.gz
	Encoder embed.FS // text encoders
)

// Families presents the files of several families as one folder.
type Families []embed.FS

// Open implements [fs.FS].
func (f Families) Open(name string) (fs.File, error) {
	for _, files := range f {
		if file, err := files.Open(name); !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// ReadDir implements [fs.ReadDirFS].
func (f Families) ReadDir(name string) ([]fs.DirEntry, error) {
	var entries []fs.DirEntry
	for _, files := range f {
		part, err := files.ReadDir(name)
		if err != nil {
			return nil, err
		}
		entries = append(entries, part...)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
