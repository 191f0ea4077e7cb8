package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt's meta pages, the first two of the file: a page header of 16 bytes,
// then magic, version, page size, flags (4 bytes each), root page and sequence,
// freelist page, number of pages, transaction id (8 bytes each), and the
// FNV-1a 64 of all that; in the byte order of the machine.
const (
	boltMagic    = 0xED0CDAED
	metaOffset   = 16
	metaSize     = 64
	minPageSize  = 1024
	maxPageSize  = 64 << 10
	sniffedBytes = metaOffset + metaSize
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
	if size < sniffedBytes {
		return fmt.Errorf("%w: %d bytes", ErrNotIndex, size)
	}
	first, err0 := readMeta(f, 0)
	if err0 != nil && !errors.Is(err0, ErrCorrupt) {
		return err0
	}
	pageSize := first.pageSize
	if err0 != nil { // page 0 is damaged: page 1 begins at a multiple of the OS's page size
		pageSize = int64(os.Getpagesize())
	}
	second, err1 := readMeta(f, pageSize)
	if err1 != nil && err0 != nil {
		return ErrNotIndex
	}
	if err := errors.Join(err0, err1); err != nil {
		return fmt.Errorf("meta page: %w", err)
	}
	pages := max(first.pages, second.pages)
	if need := pages * pageSize; pages < 4 || size < need {
		return fmt.Errorf("%w: file of %d bytes is cut short, %d pages of %d bytes belong to it", ErrCorrupt, size, pages, pageSize)
	}
	return nil
}

type boltMeta struct {
	pageSize int64
	pages    int64
	txid     uint64
}

func readMeta(r io.ReaderAt, at int64) (boltMeta, error) {
	var b [sniffedBytes]byte
	if _, err := r.ReadAt(b[:], at); err != nil {
		return boltMeta{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	m := b[metaOffset:]
	ne := binary.NativeEndian
	sum := fnv.New64a()
	sum.Write(m[:56])
	pageSize := int64(ne.Uint32(m[8:]))
	pages := int64(ne.Uint64(m[40:]))
	if ne.Uint32(m) != boltMagic || ne.Uint64(m[56:]) != sum.Sum64() ||
		pageSize < minPageSize || pageSize > maxPageSize || pages < 0 || pages > 1<<50 {
		return boltMeta{}, ErrCorrupt
	}
	return boltMeta{pageSize: pageSize, pages: pages, txid: ne.Uint64(m[48:])}, nil
}

// metaBytes is what counts of both meta pages.
type metaBytes [2][sniffedBytes]byte

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
	if size == 0 || size > firstPages*maxPageSize {
		return false
	}
	pageSize := int64(os.Getpagesize())
	good := 0
	for page := range int64(2) {
		m, err := readMeta(r, page*pageSize)
		if err == nil {
			if m.txid > 1 || m.pages != firstPages || size > firstPages*m.pageSize {
				return false
			}
			pageSize = m.pageSize
			good++
			continue
		}
		var b [sniffedBytes]byte
		n, _ := r.ReadAt(b[:], page*pageSize)
		if bytes.Count(b[:n], []byte{0}) != n {
			return false
		}
	}
	return good > 0
}

func isFirstAt(path string, size int64) (bool, error) {
	if size > firstPages*maxPageSize {
		return false, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return isFirst(file, size), nil
}
