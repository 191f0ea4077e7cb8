package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
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
	if size == 0 {
		return fmt.Errorf("%w: the file is empty", ErrNotIndex)
	}
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

// Pages describes the file as bbolt sees it.
type Pages struct {
	// Size of the file; where writers map it anew, without the room that it has to grow.
	Size int64 `json:"file_bytes"`
	Page int   `json:"page_bytes"`
	// Free pages take what is written next; only a rewrite gives them back to the
	// file system.
	Free int `json:"free_pages"`
	// Pending pages are those that changes have let go of and that open views may
	// still show: what the last change replaced, and all that was replaced since
	// the oldest view was taken. Only the process that writes knows of them; for
	// others they are free.
	Pending int `json:"pending_pages"`
	// Views is how many pictures of the file this process holds open, the one that
	// is asked included.
	Views int `json:"open_views"`
}

// Pages returns how large the file is, and how much of it is not in use.
func (v *Snapshot) Pages() (p Pages, err error) {
	defer Guard(v.file.path, &err)()
	info, err := v.handle.file.Stat() // the path may name another file by now
	if err != nil {
		return Pages{}, fmt.Errorf("%s: %w", v.file.path, err)
	}
	size := info.Size()
	if files.AsOnWindows { // the rest is room to grow
		size = min(size, v.tx.Size())
	}
	stats := v.handle.db.Stats()
	p = Pages{
		Size: size, Page: v.handle.pageSize,
		Free: stats.FreePageN, Pending: stats.PendingPageN, Views: stats.OpenTxN,
	}
	if p.Free == 0 && p.Pending == 0 { // nothing was written through this handle: bbolt has not counted
		m, err := readTxMeta(v.tx)
		if err != nil {
			return Pages{}, v.corrupt(err, "meta page")
		}
		var file io.ReaderAt = v.handle.file
		if v.Partial() {
			file = v.handle.partial
		}
		free, err := m.ReadFreeList(file)
		if err != nil {
			return Pages{}, v.corrupt(err, "list of free pages")
		}
		for _, word := range free {
			p.Free += bits.OnesCount64(word)
		}
	}
	return p, nil
}
