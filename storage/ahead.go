package storage

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// The file is mapped, and a page that is not in memory is read when it is touched: one page, while the reader
// waits. So a stage of a search asks for all that it will read, and the disk has hundreds of requests at once.
//
// Asking costs about a microsecond a range even where all is in memory. So a search asks only for documents and
// blocks that have not passed their checksums: they have not been read since the file was opened. Pages that were
// read may be gone where memory is short. Then readers wait for the disk, and the system counts such waits: while
// there are many, a search asks for everything that it will read.

// ahead is the pages that are asked for together.
type ahead struct {
	spans []memorySpan
}

// memorySpan is mapped memory from lo to hi.
type memorySpan struct{ lo, hi uintptr }

const (
	aheadGap  = 8 << 10 // bytes between two spans that are read with them
	pageBytes = 4 << 10 // the least page of any system
)

// add asks for a value, or a part of one.
func (a *ahead) add(b []byte) {
	if len(b) == 0 {
		return
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	a.spans = append(a.spans, memorySpan{at &^ (pageBytes - 1), at + uintptr(len(b))})
}

// ask begins to read what was added. With again it notes whether any of it was not in memory.
func (a *ahead) ask(again bool) {
	a.merge()
	look := again
	for _, s := range a.spans {
		if look && isMissing(s) {
			look = false
			shortage.extend()
		}
		willNeed(s)
	}
	a.spans = a.spans[:0]
}

// merge sorts the spans and joins those with small gaps between them.
func (a *ahead) merge() {
	slices.SortFunc(a.spans, func(x, y memorySpan) int { return cmp.Compare(x.lo, y.lo) })
	merged := a.spans[:0]
	for _, s := range a.spans {
		if n := len(merged); n > 0 && s.lo <= merged[n-1].hi+aheadGap {
			merged[n-1].hi = max(merged[n-1].hi, s.hi)
			continue
		}
		merged = append(merged, s)
	}
	a.spans = merged
}

// askNow begins to read values.
func askNow(values ...[]byte) {
	var a ahead
	for _, b := range values {
		a.add(b)
	}
	a.ask(false)
}

// shortage tells whether this process waits for pages that it has read before.
var shortage shortages

type shortages struct {
	looked, until, faults atomic.Int64
}

const (
	shortageLook  = 10 * time.Millisecond // the least time between two looks at the count of the system
	shortageLeast = 16                    // waits for the disk between two looks that mean a shortage
	shortageTime  = 10 * time.Second      // how long a shortage is taken to last
)

var processStart = time.Now()

// is reports whether memory is short. It costs a look at the clock, and now and then a system call.
func (s *shortages) is() bool {
	now := int64(time.Since(processStart))
	if last := s.looked.Load(); now-last > int64(shortageLook) && s.looked.CompareAndSwap(last, now) {
		faults := majorFaults()
		if before := s.faults.Swap(faults); last > 0 && faults-before >= shortageLeast {
			s.extend()
		}
	}
	return now < s.until.Load()
}

func (s *shortages) extend() { s.until.Store(int64(time.Since(processStart) + shortageTime)) }

// Prefetch begins to read what readers of a part of some documents will ask [Snapshot.ChunkFor] for. While the file is
// fetched, it waits until all of that is there.
func (v *Snapshot) Prefetch(ctx context.Context, part Arrays, ordinals []uint32) error {
	p, again := v.handle.partial, false
	whole := p.isWhole()
	if whole {
		again = shortage.is()
	} else if part == Codes {
		return nil // they were fetched when the file was opened
	}
	a, spans := v.unread(part, ordinals, whole, again)
	a.ask(again)
	if len(spans) == 0 {
		return nil
	}
	return p.fetch(ctx, spans...)
}

// unread returns the memory that [Snapshot.Prefetch] asks for where the file is whole, and else the spans that it
// fetches. With again, documents that have passed their checksums are among them.
func (v *Snapshot) unread(part Arrays, ordinals []uint32, whole, again bool) (a ahead, spans []boltfile.Span) {
	var (
		c          *chunkView
		first, end uint32
	)
	for _, ordinal := range ordinals {
		if c == nil || ordinal < first || ordinal >= end {
			chunk, _, ok := v.Locate(ordinal)
			if !ok {
				continue
			}
			c = v.chunks[chunk]
			first, end = c.Table.First, c.Table.First+uint32(c.Table.Count)
		}
		doc := ordinal - first
		switch {
		case !again && hasBit(c.passed(part), doc):
		case !whole:
			spans = v.rows(spans, c, doc)
		case part == Codes:
			a.add(c.codesOf(doc))
		default:
			if !hasBit(c.checked.first, doc) {
				a.add(c.codesOf(doc)) // the check of all reads them too
			}
			factors, residuals := c.rowsOf(doc)
			a.add(factors)
			a.add(residuals)
		}
	}
	return a, spans
}

// PrefetchPostings begins to read the lists of some centroids.
func (v *Snapshot) PrefetchPostings(centroids []uint32) {
	if !v.handle.partial.isWhole() {
		return // they were fetched when the file was opened
	}
	again := shortage.is()
	a := v.unreadPostings(centroids, again)
	a.ask(again)
}

// unreadPostings returns the memory that [Snapshot.PrefetchPostings] asks for: whole blocks that have not passed
// their checksums, and, with again, lists of those that have.
func (v *Snapshot) unreadPostings(centroids []uint32, again bool) (a ahead) {
	for _, p := range v.postings {
		for _, c := range centroids {
			block := p.blocks[c/PostingBlock]
			switch {
			case block == nil:
			case !hasBit(p.checked.first, c/PostingBlock):
				a.add(block)
			case again:
				a.add(postingOf(block, c))
			}
		}
	}
	return a
}

// codesOf and rowsOf are the arrays of a document.
func (c *chunkView) codesOf(doc uint32) []byte {
	return c.Codes[int(c.Offsets[doc])*c.CodeBytes : int(c.Offsets[doc+1])*c.CodeBytes]
}

func (c *chunkView) rowsOf(doc uint32) (factors, residuals []byte) {
	lo, hi := int(c.Offsets[doc]), int(c.Offsets[doc+1])
	return c.Factors[2*lo : 2*hi], c.Residuals[c.RowBytes*lo : c.RowBytes*hi]
}
