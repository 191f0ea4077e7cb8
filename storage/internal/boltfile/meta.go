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

	"github.com/plaid-ir/plaid/internal/files"
)

// bbolt's meta pages, the first two of the file: a page header of 16 bytes,
// then magic, version, page size, flags (4 bytes each), root page and sequence,
// freelist page, number of pages, transaction id (8 bytes each), and the
// FNV-1a 64 of all that; in the byte order of the machine.
const (
	boltMagic   = 0xED0CDAED
	metaSize    = 64
	MetaOffset  = 16
	MetaEnd     = MetaOffset + metaSize
	MinPageSize = 1024
	MaxPageSize = 64 << 10
)

// Meta is what counts of a meta page.
type Meta struct {
	PageSize int64
	Pages    int64
	TxID     uint64
	Root     uint64 // its page
	FreeList uint64 // its page
}

// ReadMeta reads the meta page that begins at a byte. Its error is [ErrCorrupt], with the
// cause if the file could not be read there; without a cause the page is returned
// nevertheless, as it is.
func ReadMeta(r io.ReaderAt, at int64) (Meta, error) {
	var b [MetaEnd]byte
	if _, err := r.ReadAt(b[:], at); err != nil {
		return Meta{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	page := b[MetaOffset:]
	ne := binary.NativeEndian
	m := Meta{
		PageSize: int64(ne.Uint32(page[8:])), Root: ne.Uint64(page[16:]), FreeList: ne.Uint64(page[32:]),
		Pages: int64(ne.Uint64(page[40:])), TxID: ne.Uint64(page[48:]),
	}
	sum := fnv.New64a()
	sum.Write(page[:56])
	if ne.Uint32(page) != boltMagic || ne.Uint64(page[56:]) != sum.Sum64() ||
		m.PageSize < MinPageSize || m.PageSize > MaxPageSize || m.Pages < 0 || m.Pages > 1<<50 {
		return m, ErrCorrupt
	}
	return m, nil
}

// Errors that the package storage hands on under its own names.
var (
	ErrCorrupt = errors.New("index is corrupt")
	ErrLocked  = errors.New("index is locked: it is open elsewhere")
)

// WithPath puts the path in front of an error of the system, which says it behind the call.
func WithPath(path string, err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// KindOf names what is no regular file.
func KindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "folder"
	}
	return "special file"
}

// Lock waits for a file's lock, until ctx ends: to write an exclusive one.
func Lock(ctx context.Context, f *os.File, write bool, deadline time.Time) error {
	err := files.WaitLock(ctx, f, write, deadline, files.HookWaiting)
	if errors.Is(err, files.ErrLocked) {
		return ErrLocked
	}
	return err
}
