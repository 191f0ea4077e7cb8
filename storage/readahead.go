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

// The file is mapped, and a page that is not in memory is read when it is touched: one page, while
// the reader waits. So a stage of a search first advises the system which pages it will read, so that
// the disk has hundreds of requests at once.
//
// Advice costs about a microsecond per range, even if all pages are in memory. So a search advises
// only about documents and blocks that have not passed their checksums, since those have not been
// read since the file was opened. If memory is short, the system may have evicted pages that were
// read before. Then readers wait for the disk, and the system counts such waits (major faults): while
// there are many, a search advises about everything that it will read.

// readAhead collects the memory that will be read.
type readAhead struct {
	spans []memorySpan
}

// memorySpan is the mapped memory from lo to hi.
type memorySpan struct{ lo, hi uintptr }

const (
	maxAheadGap  = 8 << 10 // maximum gap in bytes between two spans that are read as one
	minPageBytes = 4 << 10 // the smallest page of any system
)

// addBytes adds mapped bytes.
func (a *readAhead) addBytes(b []byte) {
	if len(b) == 0 {
		return
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	a.spans = append(a.spans, memorySpan{address &^ (minPageBytes - 1), address + uintptr(len(b))})
}

// adviseSystem makes the system read the added memory in the background. memoryShort means that some
// of it was read before: if any of that is missing in memory, the shortage lasts.
func (a *readAhead) adviseSystem(memoryShort bool) {
	a.mergeSpans()
	checkMissing := memoryShort
	for _, s := range a.spans {
		if checkMissing && isMissing(s) {
			checkMissing = false
			memoryShortage.noteShortage()
		}
		willNeed(s)
	}
	a.spans = a.spans[:0]
}

// mergeSpans sorts the spans and joins those with small gaps between them.
func (a *readAhead) mergeSpans() {
	slices.SortFunc(a.spans, func(x, y memorySpan) int { return cmp.Compare(x.lo, y.lo) })
	merged := a.spans[:0]
	for _, s := range a.spans {
		if n := len(merged); n > 0 && s.lo <= merged[n-1].hi+maxAheadGap {
			merged[n-1].hi = max(merged[n-1].hi, s.hi)
			continue
		}
		merged = append(merged, s)
	}
	a.spans = merged
}

// adviseValues makes the system read values in the background that were not read before.
func adviseValues(values ...[]byte) {
	var a readAhead
	for _, b := range values {
		a.addBytes(b)
	}
	const memoryShort = false // so that missing pages are no sign of a shortage
	a.adviseSystem(memoryShort)
}

// memoryShortage detects whether this process waits for pages that it has read before.
var memoryShortage shortageDetector

// shortageDetector detects a shortage of memory by the major faults of this process. Times are nanoseconds
// since processStart.
type shortageDetector struct {
	lastSample atomic.Int64 // time of the last sample of the faults. 0 means none
	shortUntil atomic.Int64 // time when the shortage ends
	lastFaults atomic.Int64 // major faults at the last sample
}

const (
	shortageSampleInterval = 10 * time.Millisecond // minimum time between two samples
	shortageMinFaults      = 16                    // faults between two samples that mean a shortage
	shortageDuration       = 10 * time.Second      // how long a shortage lasts after the last sign of it
)

var processStart = time.Now()

// memoryIsShort reports whether memory is short. It reads the clock, and sometimes makes a system call.
func (s *shortageDetector) memoryIsShort() bool {
	now := int64(time.Since(processStart))
	if last := s.lastSample.Load(); now-last > int64(shortageSampleInterval) && s.lastSample.CompareAndSwap(last, now) {
		faults := majorFaultCount()
		if before := s.lastFaults.Swap(faults); last > 0 && faults-before >= shortageMinFaults {
			s.noteShortage()
		}
	}
	return now < s.shortUntil.Load()
}

// noteShortage records a sign of a shortage.
func (s *shortageDetector) noteShortage() {
	s.shortUntil.Store(int64(time.Since(processStart) + shortageDuration))
}

// Prefetch makes the system read the arrays of documents in the background, for later calls of
// [Snapshot.ChunkFor]. While the file is being fetched, it waits until they are fetched.
func (v *Snapshot) Prefetch(ctx context.Context, arrays Arrays, ordinals []uint32) error {
	p, memoryShort := v.handle.partial, false
	complete := p.isComplete()
	if complete {
		memoryShort = memoryShortage.memoryIsShort()
	} else if arrays == Codes {
		return nil // they were fetched when the file was opened
	}
	a, spans := v.unreadSpans(arrays, ordinals, complete, memoryShort)
	a.adviseSystem(memoryShort)
	if len(spans) == 0 {
		return nil
	}
	return p.fetchSpans(ctx, spans...)
}

// unreadSpans returns the memory that [Snapshot.Prefetch] advises about if the file is complete, and
// otherwise the spans of the file that it fetches. Documents that have passed their checksums are
// included only if memory is short.
func (v *Snapshot) unreadSpans(
	arrays Arrays, ordinals []uint32, complete, memoryShort bool,
) (a readAhead, spans []boltfile.Span) {
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
		case !memoryShort && hasBit(c.passedDocs(arrays), doc):
		case !complete:
			spans = v.appendRowSpans(spans, c, doc)
		case arrays == Codes:
			a.addBytes(c.docCodes(doc))
		default:
			if !hasBit(c.checked.codesOrBlocks, doc) {
				a.addBytes(c.docCodes(doc)) // the check of All reads them, too
			}
			factors, residuals := c.docRows(doc)
			a.addBytes(factors)
			a.addBytes(residuals)
		}
	}
	return a, spans
}

// PrefetchPostings makes the system read the posting lists of centroids in the background.
func (v *Snapshot) PrefetchPostings(centroids []uint32) {
	if !v.handle.partial.isComplete() {
		return // they were fetched when the file was opened
	}
	memoryShort := memoryShortage.memoryIsShort()
	a := v.unreadPostings(centroids, memoryShort)
	a.adviseSystem(memoryShort)
}

// unreadPostings returns the memory that [Snapshot.PrefetchPostings] advises about: blocks that have
// not passed their checksums, and, if memory is short, the lists in those that have.
func (v *Snapshot) unreadPostings(centroids []uint32, memoryShort bool) (a readAhead) {
	for _, p := range v.postings {
		for _, c := range centroids {
			block := p.blocks[c/PostingBlock]
			switch {
			case block == nil:
			case !hasBit(p.checked.codesOrBlocks, c/PostingBlock):
				a.addBytes(block)
			case memoryShort:
				a.addBytes(postingList(block, c))
			}
		}
	}
	return a
}

// docCodes returns the codes of a document of the chunk.
func (c *chunkView) docCodes(doc uint32) []byte {
	return c.Codes[int(c.Offsets[doc])*c.CodeBytes : int(c.Offsets[doc+1])*c.CodeBytes]
}

// docRows returns the factors and residuals of a document of the chunk.
func (c *chunkView) docRows(doc uint32) (factors, residuals []byte) {
	lo, hi := int(c.Offsets[doc]), int(c.Offsets[doc+1])
	return c.Factors[2*lo : 2*hi], c.Residuals[c.RowBytes*lo : c.RowBytes*hi]
}
