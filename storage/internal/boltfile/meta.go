package boltfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/plaid-ir/plaid/internal/errkind"
	"github.com/plaid-ir/plaid/internal/files"
)

// bbolt's meta pages are the first two of the file: a page header of 16 bytes, then magic, version,
// page size, flags (4 bytes each), root page and sequence, freelist page, number of pages,
// transaction id (8 bytes each), and the FNV-1a 64 of the bytes from the magic on; in the byte order
// of the machine.
const (
	boltMagic   = 0xED0CDAED
	metaSize    = 64
	MetaOffset  = 16
	MetaEnd     = MetaOffset + metaSize
	MinPageSize = 1024
	MaxPageSize = 64 << 10
)

// Meta is the used fields of a meta page.
type Meta struct {
	PageSize int64
	Pages    int64
	TxID     uint64
	Root     uint64 // page of the root bucket
	FreeList uint64 // page of the list of free pages
}

// ReadMeta reads the meta page at an offset. If the page is damaged, it returns its fields, as they
// are, with [ErrCorrupt]. If the file cannot be read there, the error also wraps the cause.
func ReadMeta(r io.ReaderAt, offset int64) (Meta, error) {
	var b [MetaEnd]byte
	if _, err := r.ReadAt(b[:], offset); err != nil {
		return Meta{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	page := b[MetaOffset:]
	ne := binary.NativeEndian
	m := Meta{
		PageSize: int64(ne.Uint32(page[8:])),
		Root:     ne.Uint64(page[16:]),
		FreeList: ne.Uint64(page[32:]),
		Pages:    int64(ne.Uint64(page[40:])),
		TxID:     ne.Uint64(page[48:]),
	}
	sum := fnv.New64a()
	sum.Write(page[:56])
	// The bound of the pages keeps their bytes in 64 bits.
	if ne.Uint32(page) != boltMagic || ne.Uint64(page[56:]) != sum.Sum64() ||
		m.PageSize < MinPageSize || m.PageSize > MaxPageSize || m.Pages < 0 || m.Pages > 1<<50 {
		return m, ErrCorrupt
	}
	return m, nil
}

// Errors that package storage exports under its own names.
var (
	ErrCorrupt = errkind.New(errkind.Damaged, "index is corrupt")
	ErrLocked  = errkind.New(errkind.Locked, "index is locked: it is open elsewhere")
)

// WithPath returns an error of the system with the path in front, in place of fs.PathError's
// "open path: …".
func WithPath(path string, err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// KindOf names the kind of a file that is not regular.
func KindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "folder"
	}
	return "special file"
}

// Lock acquires the lock of a file: an exclusive one to write, otherwise a shared one. It waits until
// the deadline, or until ctx ends. The error is [ErrLocked] after the deadline.
func Lock(ctx context.Context, f *os.File, write bool, deadline time.Time) error {
	err := files.WaitLock(ctx, f, write, deadline, files.HookWaiting)
	if errors.Is(err, files.ErrLocked) {
		return ErrLocked
	}
	return err
}
