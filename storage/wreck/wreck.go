// Package wreck reads damaged index files, for a salvage. It has its own reader of the B+tree that
// package storage writes, which trusts nothing in the file.
package wreck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// Reader reads a damaged index file.
//
//  1. It uses neither a mapping nor bbolt, and reads pages one by one.
//  2. It notes and skips a page of a wrong kind.
//  3. It uses no value with a wrong checksum.
//  4. If the tree does not lead to a value any more, it searches the pages that are in use but that
//     the tree does not reach (strays): the checksum of a value proves its key.
//
// It is not safe for concurrent use.
type Reader struct {
	ctx         context.Context // of Open; ends all reading
	path        string
	file        *os.File
	size        int64 // bytes of the file
	pageSize    int64
	pages       uint64 // that belong to the transaction
	transaction Transaction
	root        uint64

	faults   []string
	unlisted int // number of faults beyond maxFaults

	reached        boltfile.PageSet // pages of the tree
	freePages      boltfile.PageSet // nil if the list of free pages is damaged
	frame          map[string]span
	generations    map[uint64]*foundValues
	misplacedPages []leafPage   // pages that the tree reached in place of others
	strays         *foundValues // values that the tree does not lead to, nil before findStrays
	current        *foundValues // values of the current generation
	header         storage.Header
	state          *storage.State // nil if its record is damaged
	codec          kernels.Codec
	cutoffs        []float32
	chunks         []foundChunk
	livenessSource livenessSource
	liveDocs       *roaring.Bitmap // by ids, nil if the tombstones are sound
	deletedDocs    *roaring.Bitmap // by tombstones
	payloadDocs    *roaring.Bitmap // documents with payload, nil if unknown
	passages       *roaring.Bitmap // ordinals that are passages, nil if unknown
	payloads       []payloadValue
	strayPayloads  []payloadValue // payloads among the strays, nil before they are needed
}

// Transaction identifies the commit whose content a [Reader] reads.
type Transaction struct {
	// ID is the number of the transaction.
	ID uint64 `json:"id"`
	// DamagedMeta means that the other of the two meta pages is damaged. If that was the newer one,
	// the last commit is lost.
	DamagedMeta bool `json:"damaged_meta_page"`
	// Claimed is the transaction that the damaged page names, or 0 if that is not plausible.
	Claimed uint64 `json:"damaged_meta_page_claims,omitempty"`
}

// Open finds the readable content of an index file, without changing the file. If another process
// writes to it, Open waits for at most lockTimeout. ctx also ends later reads.
//
// Errors: [storage.ErrNotIndex], [storage.ErrUnfinished], [storage.ErrVersion], [storage.ErrLocked];
// and [storage.ErrCorrupt] with the reason if the codec is lost, or if sound content cannot be told
// from content that was removed before. With the last, the Reader is returned as well, for its
// Faults: call only Faults and Close.
func Open(ctx context.Context, path string, lockTimeout time.Duration) (w *Reader, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, boltfile.WithPath(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is a %s", path, storage.ErrNotIndex, boltfile.KindOf(info))
	}
	f, err := files.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, boltfile.WithPath(path, err)
	}
	w = &Reader{ctx: ctx, path: path, file: f, frame: map[string]span{}, generations: map[uint64]*foundValues{}}
	const write = false
	if err := boltfile.Lock(ctx, f, write, time.Now().Add(lockTimeout)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	if info, err = f.Stat(); err != nil {
		return nil, errors.Join(boltfile.WithPath(path, err), f.Close())
	}
	w.size = info.Size()
	if err := w.readMeta(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	err = w.findContent()
	if ctxErr := ctx.Err(); ctxErr != nil { // the content is incomplete, even without an error
		err = ctxErr
	}
	if err != nil && !errors.Is(err, storage.ErrCorrupt) {
		return nil, errors.Join(err, f.Close())
	}
	return w, err
}

// Close closes the file.
func (w *Reader) Close() error { return w.file.Close() }

// Path returns the path of the file.
func (w *Reader) Path() string { return w.path }

// Transaction returns the commit whose content is read.
func (w *Reader) Transaction() Transaction { return w.transaction }

// Faults lists the damage found so far.
func (w *Reader) Faults() []string {
	faults := w.faults
	if w.unlisted > 0 {
		faults = append(faults[:len(faults):len(faults)], fmt.Sprintf("and %d more", w.unlisted))
	}
	return faults
}

// Header returns the header of the generation.
func (w *Reader) Header() storage.Header { return w.header }

// Codec returns the codec of the generation.
func (w *Reader) Codec() *kernels.Codec { return &w.codec }

// Cutoffs returns the bucket bounds of a table codebook, nil for uniform levels.
func (w *Reader) Cutoffs() []float32 { return w.cutoffs }

// State returns the counters; ok is false if their record is damaged.
func (w *Reader) State() (s storage.State, ok bool) {
	if w.state == nil {
		return storage.State{}, false
	}
	return *w.state, true
}

// maxFaults is the maximum number of faults in the list.
const maxFaults = 100

// noteFault adds a fault to the list.
func (w *Reader) noteFault(format string, args ...any) {
	if len(w.faults) == maxFaults {
		w.unlisted++
		return
	}
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// corruptError returns a [storage.CorruptError]. err may be nil.
func (w *Reader) corruptError(err error, format string, args ...any) error {
	return &storage.CorruptError{Path: w.path, What: fmt.Sprintf(format, args...), Err: err}
}

// readMeta selects the newest sound meta page, and reads the list of free pages.
func (w *Reader) readMeta() error {
	if w.size < boltfile.MetaEnd {
		if w.size == 0 {
			return fmt.Errorf("%w: the file is empty", storage.ErrNotIndex)
		}
		return fmt.Errorf("%w: %d bytes", storage.ErrNotIndex, w.size)
	}
	// Determine the page size.
	first, err := boltfile.ReadMeta(w.file, 0)
	w.pageSize = first.PageSize
	if err != nil {
		// Page 1 begins at the unknown page size: try all.
		for w.pageSize = boltfile.MinPageSize; w.pageSize <= boltfile.MaxPageSize; w.pageSize *= 2 {
			if m, err := boltfile.ReadMeta(w.file, w.pageSize); err == nil && m.PageSize == w.pageSize {
				break
			}
		}
		if w.pageSize > boltfile.MaxPageSize {
			return fmt.Errorf("%w, or both of its meta pages are damaged", storage.ErrNotIndex)
		}
	}
	// Select the transaction, and compare its pages with the size of the file.
	m := w.selectNewestMeta()
	if need := int64(w.pages) * w.pageSize; w.size < need {
		w.noteFault("file of %d bytes is cut short, %d pages of %d bytes belong to it", w.size, w.pages, w.pageSize)
		w.pages = uint64((w.size + w.pageSize - 1) / w.pageSize)
	}
	if w.pages < 4 { // two meta pages, the list of free pages, and a leaf
		return fmt.Errorf("%w: %d pages", storage.ErrNotIndex, w.pages)
	}
	// Read the list of free pages. It has no checksum: it is trusted if it is ascending and, as
	// findContent checks later, has no page of the tree.
	w.reached = boltfile.NewPageSet(w.pages)
	m.Pages = int64(w.pages)
	if w.freePages, err = m.ReadFreeList(w.file); err != nil {
		w.noteFault("list of free pages: %v", err)
	} else if w.freePages != nil {
		w.reached.Add(m.FreeList)
	}
	return nil
}

// selectNewestMeta sets the transaction of the newest sound meta page, and returns the page.
func (w *Reader) selectNewestMeta() (newest boltfile.Meta) {
	found := false
	for i := range int64(2) {
		m, err := boltfile.ReadMeta(w.file, i*w.pageSize)
		if err != nil || m.PageSize != w.pageSize {
			w.noteFault("meta page %d is damaged", i)
			w.transaction.DamagedMeta, w.transaction.Claimed = true, m.TxID
			continue
		}
		if found && m.TxID < w.transaction.ID {
			continue
		}
		found = true
		newest, w.transaction.ID, w.root, w.pages = m, m.TxID, m.Root, uint64(m.Pages)
	}
	// The two meta pages are of successive transactions: another id is damaged.
	if d := int64(w.transaction.Claimed - w.transaction.ID); d != 1 && d != -1 {
		w.transaction.Claimed = 0
	}
	return newest
}

// readAt reads bytes of the file, unless the context has ended.
func (w *Reader) readAt(b []byte, offset int64) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.file.ReadAt(b, offset)
}
