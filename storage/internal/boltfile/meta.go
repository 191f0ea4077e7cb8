package boltfile

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
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
