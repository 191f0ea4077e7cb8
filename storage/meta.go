package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// checkMeta looks at both meta pages and at the length of the file. bbolt is
// content with one good meta page, that is, it would show the index as it was
// one transaction ago when the newer page is damaged, and it trusts the page
// count even when the file was cut short.
func checkMeta(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size < boltfile.MetaEnd {
		return fmt.Errorf("%w: %d bytes", ErrNotIndex, size)
	}
	first, err0 := boltfile.ReadMeta(f, 0)
	if err0 != nil && !errors.Is(err0, ErrCorrupt) {
		return err0
	}
	pageSize := first.PageSize
	if err0 != nil { // page 0 is damaged: page 1 begins at a multiple of the OS's page size
		pageSize = int64(os.Getpagesize())
	}
	second, err1 := boltfile.ReadMeta(f, pageSize)
	if err1 != nil && err0 != nil {
		return ErrNotIndex
	}
	if err := errors.Join(err0, err1); err != nil {
		return fmt.Errorf("meta page: %w", err)
	}
	pages := max(first.Pages, second.Pages)
	if need := pages * pageSize; pages < 4 || size < need {
		return fmt.Errorf("%w: file of %d bytes is cut short, %d pages of %d bytes belong to it", ErrCorrupt, size, pages, pageSize)
	}
	return nil
}

// metaBytes is what counts of both meta pages.
type metaBytes [2][boltfile.MetaEnd]byte

func (h *handle) metaPages() (b metaBytes, err error) {
	for page := range b {
		if _, err := h.file.ReadAt(b[page][:], int64(page*h.pageSize)); err != nil {
			return b, err
		}
	}
	return b, nil
}

// firstPages is how many pages bbolt begins a file with, in one write.
const firstPages = 4

// isFirst reports whether a file of a size is what is there of bbolt's first
// write, of which a program or machine that stops may leave any part: no more
// than four pages, and of the meta pages those of the beginning or nothing.
func isFirst(r io.ReaderAt, size int64) bool {
	if size == 0 || size > firstPages*boltfile.MaxPageSize {
		return false
	}
	pageSize := int64(os.Getpagesize())
	good := 0
	for page := range int64(2) {
		m, err := boltfile.ReadMeta(r, page*pageSize)
		if err == nil {
			if m.TxID > 1 || m.Pages != firstPages || size > firstPages*m.PageSize {
				return false
			}
			pageSize = m.PageSize
			good++
			continue
		}
		var b [boltfile.MetaEnd]byte
		n, _ := r.ReadAt(b[:], page*pageSize)
		if bytes.Count(b[:n], []byte{0}) != n {
			return false
		}
	}
	return good > 0
}

func isFirstAt(path string, size int64) (bool, error) {
	if size > firstPages*boltfile.MaxPageSize {
		return false, nil
	}
	file, err := files.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return isFirst(file, size), nil
}
