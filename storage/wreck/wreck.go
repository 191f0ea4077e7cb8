// Package wreck reads damaged index files, for a salvage: a second reader of the B+tree
// that the package storage writes, which trusts nothing of the file.
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

// Reader reads an index file past its damage. It maps nothing and lets bbolt see
// nothing of the file: pages are read one by one, a page that is not what its
// place asks for is noted and passed over, and no value counts whose checksum is
// wrong. Where the tree does not lead to a value any more,
// the pages that are in use but not reached are looked through: what is found
// there proves by its checksum what it is.
//
// It is not safe for concurrent use.
type Reader struct {
	ctx         context.Context // of Open, ends all reading
	path        string
	file        *os.File
	size        int64 // bytes of the file
	pageSize    int64
	pages       uint64 // that belong to the transaction
	transaction Transaction
	root        uint64

	faults   []string
	unlisted int // faults that are not listed

	reached        boltfile.PageSet // the tree leads there
	freePages      boltfile.PageSet // nil if the list of free pages is damaged
	frame          map[string]span
	generations    map[uint64]*finds
	misplacedPages []leafPage // reached, but not what was expected there
	strays         *finds     // what is in use and not reached; nil until looked for
	finds          *finds     // of the current generation
	header         storage.Header
	state          *storage.State // nil if its record is damaged
	codec          kernels.Codec
	cutoffs        []float32
	chunks         []foundChunk
	liveness       liveness
	liveDocs       *roaring.Bitmap // of the liveness; nil where the tombstones tell
	deletedDocs    *roaring.Bitmap
	// payloadDocs are the documents with payload; nil: it is not known which have one.
	payloadDocs *roaring.Bitmap
	passages    *roaring.Bitmap // nil if it is lost
	payload     []payloadAt
	misplaced   []payloadAt // payloads among the strays; nil until looked for
}

// Transaction says as of which commit a [Reader] reads.
type Transaction struct {
	// ID is that of the transaction.
	ID uint64 `json:"id"`
	// DamagedMeta says that the other of the two meta pages is damaged. If that
	// was the newer one, the last commit is not seen.
	DamagedMeta bool `json:"damaged_meta_page"`
	// Claimed is the transaction that the damaged page names, as far as that can
	// be believed.
	Claimed uint64 `json:"damaged_meta_page_claims,omitempty"`
}

// Open finds what can be read of an index file. The file is not changed. A process that
// writes to it is waited for as long as lockTimeout says. The context ends also what is read
// later.
//
// Errors: [storage.ErrNotIndex], [storage.ErrUnfinished], [storage.ErrVersion],
// [storage.ErrLocked], and [storage.ErrCorrupt] with the reason, if the codec is lost or
// what is found cannot be told from what was removed before. Together with the last, the
// Reader is returned nevertheless, for its Faults; nothing else may be asked of it then,
// and it must be closed.
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
	w = &Reader{ctx: ctx, path: path, file: f, frame: map[string]span{}, generations: map[uint64]*finds{}}
	if err := boltfile.Lock(ctx, f, false, time.Now().Add(lockTimeout)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	if info, err = f.Stat(); err != nil {
		return nil, errors.Join(boltfile.WithPath(path, err), f.Close())
	}
	w.size = info.Size()
	if err := w.chooseMeta(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	err = w.survey()
	if cut := ctx.Err(); cut != nil { // what was found is not all
		err = cut
	}
	if err != nil && !errors.Is(err, storage.ErrCorrupt) {
		return nil, errors.Join(err, f.Close())
	}
	return w, err
}

// Close closes the file.
func (w *Reader) Close() error { return w.file.Close() }

// Path is the file's name.
func (w *Reader) Path() string { return w.path }

// Transaction is the commit that the file is read as of.
func (w *Reader) Transaction() Transaction { return w.transaction }

// Faults lists what was found damaged so far.
func (w *Reader) Faults() []string {
	faults := w.faults
	if w.unlisted > 0 {
		faults = append(faults[:len(faults):len(faults)], fmt.Sprintf("and %d more", w.unlisted))
	}
	return faults
}

// Header is that of the generation.
func (w *Reader) Header() storage.Header { return w.header }

// Codec is that of the generation.
func (w *Reader) Codec() *kernels.Codec { return &w.codec }

// Cutoffs are the bucket bounds of a table codebook, nil for uniform levels.
func (w *Reader) Cutoffs() []float32 { return w.cutoffs }

// State returns the counters; ok is false if their record is damaged.
func (w *Reader) State() (s storage.State, ok bool) {
	if w.state == nil {
		return storage.State{}, false
	}
	return *w.state, true
}

const maxFaults = 100

func (w *Reader) noteFault(format string, args ...any) {
	if len(w.faults) == maxFaults {
		w.unlisted++
		return
	}
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *Reader) corrupt(err error, format string, args ...any) error {
	return &storage.CorruptError{Path: w.path, What: fmt.Sprintf(format, args...), Err: err}
}

// chooseMeta takes the newest meta page that is sound.
func (w *Reader) chooseMeta() error {
	if w.size < boltfile.MetaEnd {
		if w.size == 0 {
			return fmt.Errorf("%w: the file is empty", storage.ErrNotIndex)
		}
		return fmt.Errorf("%w: %d bytes", storage.ErrNotIndex, w.size)
	}
	first, err := boltfile.ReadMeta(w.file, 0)
	w.pageSize = first.PageSize
	if err != nil {
		// Where page 1 begins is not known then.
		for w.pageSize = boltfile.MinPageSize; w.pageSize <= boltfile.MaxPageSize; w.pageSize *= 2 {
			if m, err := boltfile.ReadMeta(w.file, w.pageSize); err == nil && m.PageSize == w.pageSize {
				break
			}
		}
		if w.pageSize > boltfile.MaxPageSize {
			return fmt.Errorf("%w, or both of its meta pages are damaged", storage.ErrNotIndex)
		}
	}
	m := w.takeNewest()
	if need := int64(w.pages) * w.pageSize; w.size < need {
		w.noteFault("file of %d bytes is cut short, %d pages of %d bytes belong to it", w.size, w.pages, w.pageSize)
		w.pages = uint64((w.size + w.pageSize - 1) / w.pageSize)
	}
	if w.pages < 4 {
		return fmt.Errorf("%w: %d pages", storage.ErrNotIndex, w.pages)
	}
	w.reached = boltfile.NewPageSet(w.pages)
	// The list of free pages has no checksum: it counts if it is ascending and, which is seen
	// later, has no page that the tree leads to.
	m.Pages = int64(w.pages)
	if w.freePages, err = m.ReadFreeList(w.file); err != nil {
		w.noteFault("list of free pages: %v", err)
	} else if w.freePages != nil {
		w.reached.Add(m.FreeList)
	}
	return nil
}

// takeNewest takes the transaction of the newest meta page that is sound.
func (w *Reader) takeNewest() (newest boltfile.Meta) {
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
	if d := int64(w.transaction.Claimed - w.transaction.ID); d != 1 && d != -1 {
		w.transaction.Claimed = 0
	}
	return newest
}

// readAt reads the file until the context ends.
func (w *Reader) readAt(b []byte, at int64) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.file.ReadAt(b, at)
}
