package storage

import (
	"fmt"
	"math/bits"

	"github.com/plaid-ir/plaid/internal/files"
)

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
func (v *View) Pages() (p Pages, err error) {
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
		free, err := m.freePages(v.handle.file)
		if err != nil {
			return Pages{}, v.corrupt(err, "list of free pages")
		}
		for _, word := range free {
			p.Free += bits.OnesCount64(word)
		}
	}
	return p, nil
}
