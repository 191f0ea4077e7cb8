package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/kernels"
)

// Wreck is an index file that is read past its damage. It maps nothing and
// lets bbolt see nothing of the file: pages are read one by one, a page that is
// not what its place asks for is noted and passed over, and no value counts
// whose checksum is wrong. Where the tree does not lead to a value any more,
// the pages that are in use but not reached are looked through: what is found
// there proves by its checksum what it is.
//
// It is not safe for concurrent use.
type Wreck struct {
	path  string
	file  *os.File
	size  int64 // bytes of the file
	page  int64
	pages uint64 // that belong to the transaction
	tx    WreckTransaction
	root  uint64

	faults []string
	more   int // faults that are not listed

	reached   []uint64 // a bit a page: the tree leads there
	free      []uint64 // a bit a page; nil if the list of free pages is damaged
	frame     map[string]span
	gens      map[uint64]*finds
	loose     []leafPage // reached, but not what was expected there
	strays    *finds     // what is in use and not reached; nil until looked for
	finds     *finds     // of the current generation
	header    Header
	state     *State // nil if its record is damaged
	codec     kernels.Codec
	cutoffs   []float32
	chunks    []wreckChunk
	liveness  liveness
	alive     *roaring.Bitmap // of the liveness; nil where the tombstones tell
	dead      *roaring.Bitmap
	payload   []payloadAt
	misplaced []payloadAt // payloads among the strays; nil until looked for
}

// WreckTransaction says as of which commit a [Wreck] is read.
type WreckTransaction struct {
	// ID is that of the transaction.
	ID uint64 `json:"id"`
	// DamagedMeta says that the other of the two meta pages is damaged. If that
	// was the newer one, the last commit is not seen.
	DamagedMeta bool `json:"damaged_meta_page"`
	// Claimed is the transaction that the damaged page names, as far as that can
	// be believed.
	Claimed uint64 `json:"damaged_meta_page_claims,omitempty"`
}

// WreckOptions for OpenWreck.
type WreckOptions struct {
	// LockTimeout is how long to wait for a process that writes to the file.
	LockTimeout time.Duration
}

// OpenWreck finds what can be read of an index file. The file is not changed.
//
// Errors: [ErrNotIndex], [ErrUnfinished], [ErrVersion], [ErrLocked], and
// [ErrCorrupt] with the reason, if the codec is lost or what is found cannot be
// told from what was removed before. Together with the last, the Wreck is
// returned nevertheless, for its Faults; nothing else may be asked of it then,
// and it must be closed.
func OpenWreck(ctx context.Context, path string, o WreckOptions) (w *Wreck, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, opening(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is a %s", path, ErrNotIndex, kindOf(info))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, opening(path, err)
	}
	w = &Wreck{path: path, file: f, frame: map[string]span{}, gens: map[uint64]*finds{}}
	if err := lock(ctx, f, false, time.Now().Add(o.LockTimeout)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	if info, err = f.Stat(); err != nil {
		return nil, errors.Join(opening(path, err), f.Close())
	}
	w.size = info.Size()
	if err := w.chooseMeta(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	err = w.survey(ctx)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return nil, errors.Join(err, f.Close())
	}
	return w, err
}

// Close closes the file.
func (w *Wreck) Close() error { return w.file.Close() }

// Path is the file's name.
func (w *Wreck) Path() string { return w.path }

// Transaction is the commit that the file is read as of.
func (w *Wreck) Transaction() WreckTransaction { return w.tx }

// Faults lists what was found damaged so far.
func (w *Wreck) Faults() []string {
	faults := w.faults
	if w.more > 0 {
		faults = append(faults[:len(faults):len(faults)], fmt.Sprintf("and %d more", w.more))
	}
	return faults
}

// Header is that of the generation.
func (w *Wreck) Header() Header { return w.header }

// Codec is that of the generation.
func (w *Wreck) Codec() *kernels.Codec { return &w.codec }

// Cutoffs are the bucket bounds of a table codebook, nil for uniform levels.
func (w *Wreck) Cutoffs() []float32 { return w.cutoffs }

// State returns the counters; ok is false if their record is damaged.
func (w *Wreck) State() (s State, ok bool) {
	if w.state == nil {
		return State{}, false
	}
	return *w.state, true
}

const maxWreckFaults = 100

func (w *Wreck) note(format string, args ...any) {
	if len(w.faults) == maxWreckFaults {
		w.more++
		return
	}
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *Wreck) bad(err error, format string, args ...any) error {
	return corrupt(w.path, err, format, args...)
}

// chooseMeta takes the newest meta page that is sound.
func (w *Wreck) chooseMeta() error {
	if w.size < sniffedBytes {
		return fmt.Errorf("%w: %d bytes", ErrNotIndex, w.size)
	}
	first, err := readMeta(w.file, 0)
	w.page = first.pageSize
	if err != nil {
		// Where page 1 begins is not known then.
		for w.page = minPageSize; w.page <= maxPageSize; w.page *= 2 {
			if m, err := readMeta(w.file, w.page); err == nil && m.pageSize == w.page {
				break
			}
		}
		if w.page > maxPageSize {
			return fmt.Errorf("%w, or both of its meta pages are damaged", ErrNotIndex)
		}
	}
	ne := binary.NativeEndian
	var free uint64
	found := false
	for i := range int64(2) {
		var b [sniffedBytes]byte
		_, rerr := w.file.ReadAt(b[:], i*w.page)
		m := b[metaOffset:]
		id := ne.Uint64(m[48:])
		meta, err := readMeta(w.file, i*w.page)
		if err != nil || meta.pageSize != w.page {
			w.note("meta page %d is damaged", i)
			w.tx.DamagedMeta = true
			if rerr == nil {
				w.tx.Claimed = id
			}
			continue
		}
		if found && id < w.tx.ID {
			continue
		}
		found = true
		w.tx.ID = id
		w.root, free, w.pages = ne.Uint64(m[16:]), ne.Uint64(m[32:]), uint64(meta.pages)
	}
	if d := int64(w.tx.Claimed - w.tx.ID); d != 1 && d != -1 {
		w.tx.Claimed = 0
	}
	if need := int64(w.pages) * w.page; w.size < need {
		w.note("file of %d bytes is cut short, %d pages of %d bytes belong to it", w.size, w.pages, w.page)
		w.pages = uint64((w.size + w.page - 1) / w.page)
	}
	if w.pages < 4 {
		return fmt.Errorf("%w: %d pages", ErrNotIndex, w.pages)
	}
	w.reached = make([]uint64, (w.pages+63)/64)
	w.readFree(free)
	return nil
}

// readFree reads the list of free pages. It has no checksum: it counts if it is
// ascending and, which is seen later, has no page that the tree leads to.
func (w *Wreck) readFree(id uint64) {
	err := func() error {
		if id < 2 || id >= w.pages {
			return fmt.Errorf("page %d of %d", id, w.pages)
		}
		h, err := w.head(int64(id) * w.page)
		if err != nil {
			return err
		}
		if h.id != id || h.flags != pageFreelist {
			return fmt.Errorf("page %d is none", id)
		}
		ne := binary.NativeEndian
		at, count := int64(id)*w.page+pageHeader, int64(h.count)
		if h.count == manyFree {
			var word [8]byte
			if _, err := w.file.ReadAt(word[:], at); err != nil {
				return err
			}
			count = int64(ne.Uint64(word[:]))
			at += 8
		}
		if count < 0 || count > int64(w.pages) {
			return fmt.Errorf("%d pages of %d", count, w.pages)
		}
		list := make([]byte, 8*count)
		if _, err := w.file.ReadAt(list, at); err != nil {
			return err
		}
		free := make([]uint64, len(w.reached))
		for last := uint64(1); len(list) > 0; list = list[8:] {
			p := ne.Uint64(list)
			if p <= last || p >= w.pages || p == id {
				return fmt.Errorf("page %d after %d", p, last)
			}
			free[p/64] |= 1 << (p % 64)
			last = p
		}
		w.free = free
		w.reached[id/64] |= 1 << (id % 64)
		return nil
	}()
	if err != nil {
		w.note("list of free pages: %v", err)
	}
}

func bit(set []uint64, i uint64) bool { return set[i/64]>>(i%64)&1 == 1 }
