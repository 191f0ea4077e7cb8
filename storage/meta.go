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

// checkMeta checks both meta pages and the length of the file. bbolt does not: it accepts one sound
// meta page, so that it would show the index as of one transaction ago if the newer page is damaged,
// and it trusts the page count even if the file was cut short.
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
	if err0 != nil { // page 0 is damaged: bbolt gives a new file the page size of the system
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
	if need := pages * pageSize; pages < firstPages || size < need {
		return fmt.Errorf("%w: file of %d bytes is cut short, %d pages of %d bytes belong to it",
			ErrCorrupt, size, pages, pageSize)
	}
	return nil
}

// metaBytes is the used bytes of both meta pages.
type metaBytes [2][boltfile.MetaEnd]byte

// metaPages reads both meta pages from the file.
func (h *handle) metaPages() (b metaBytes, err error) {
	for page := range b {
		if _, err := h.file.ReadAt(b[page][:], int64(page*h.pageSize)); err != nil {
			return b, err
		}
	}
	return b, nil
}

// firstPages is the number of pages of a new file: two meta pages, a list of free pages and an empty
// leaf. bbolt writes them at once.
const firstPages = 4

// isFirstWrite reports whether a file holds only part of bbolt's first write, or all of it, as after a
// crash: no more than firstPages, and each meta page either one of a new file or zeros.
func isFirstWrite(r io.ReaderAt, size int64) bool {
	if size == 0 || size > firstPages*boltfile.MaxPageSize {
		return false
	}
	pageSize := int64(os.Getpagesize())
	metas := 0
	for page := range int64(2) {
		m, err := boltfile.ReadMeta(r, page*pageSize)
		if err == nil {
			if m.TxID > 1 || m.Pages != firstPages || size > firstPages*m.PageSize {
				return false
			}
			pageSize = m.PageSize
			metas++
			continue
		}
		var b [boltfile.MetaEnd]byte
		n, _ := r.ReadAt(b[:], page*pageSize)
		if bytes.Count(b[:n], []byte{0}) != n {
			return false
		}
	}
	return metas > 0
}

// isFirstWriteAt is isFirstWrite for the file at a path.
func isFirstWriteAt(path string, size int64) (bool, error) {
	if size > firstPages*boltfile.MaxPageSize {
		return false, nil
	}
	file, err := files.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return isFirstWrite(file, size), nil
}

// Pages describes the file as bbolt sees it.
type Pages struct {
	// Size is the size of the file. On Windows the space into which the file can grow is not counted.
	Size int64 `json:"file_bytes"`
	Page int   `json:"page_bytes"`
	// Free is the number of pages that later changes will reuse. Only a rewrite returns them to the
	// file system.
	Free int `json:"free_pages"`
	// Pending is the number of pages that changes have replaced and that open snapshots may still
	// show: those of the last change, and of all changes since the oldest snapshot. Only the writing
	// process knows them; others count them as free.
	Pending int `json:"pending_pages"`
	// Views is the number of snapshots that this process has open, this one included.
	Snapshots int `json:"open_views"`
}

// Pages returns the size of the file, and the number of pages that are not in use.
func (v *Snapshot) Pages() (p Pages, err error) {
	defer Guard(v.file.path, &err)()
	info, err := v.handle.file.Stat() // the path may name another file by now
	if err != nil {
		return Pages{}, fmt.Errorf("%s: %w", v.file.path, err)
	}
	size := info.Size()
	if files.EmulateWindows { // the file is as long as its mapping; see read_mapping.go
		size = min(size, v.tx.Size())
	}
	stats := v.handle.db.Stats()
	p = Pages{
		Size:      size,
		Page:      v.handle.pageSize,
		Free:      stats.FreePageN,
		Pending:   stats.PendingPageN,
		Snapshots: stats.OpenTxN,
	}
	if p.Free == 0 && p.Pending == 0 { // bbolt counts free pages only when it writes
		m, err := readTxMeta(v.tx)
		if err != nil {
			return Pages{}, v.corruptError(err, "meta page")
		}
		var file io.ReaderAt = v.handle.file
		if v.IsPartial() {
			file = v.handle.partial
		}
		free, err := m.ReadFreeList(file)
		if err != nil {
			return Pages{}, v.corruptError(err, "list of free pages")
		}
		for _, word := range free {
			p.Free += bits.OnesCount64(word)
		}
	}
	return p, nil
}
