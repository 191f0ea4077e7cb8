package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// A file may be read while it is fetched from elsewhere ([Options.Source]). Opening it fetches the
// content that every search reads: the structure of the tree, codec, document tables, bitmaps, codes
// and postings, a tenth to a fifth of the file. The remaining content is
//
//   - residuals and factors: a search reads those of some hundred documents;
//   - the leaves of ids, payloads and field runs: a look-up reads one.
//
// [Snapshot.Chunk], [Snapshot.ChunkFor] and lookupBucket.get fetch these before they read them. All other
// readers read everything, and wait for the complete file ([Snapshot.WaitComplete]). So bytes that
// have not been fetched are never read, and a checksum is compared only when all of its bytes are in
// the file.

// Source fetches a file, which has its full length from the beginning.
type Source interface {
	// Ensure returns when n bytes from an offset on are in the file, or with an error when ctx ends
	// before. Many goroutines call it at a time.
	Ensure(ctx context.Context, off, n int64) error
}

// partialFile is a file that is being fetched. A nil *partialFile is a complete file, as most are.
type partialFile struct {
	source      Source
	file        *os.File
	size        int64
	pageSize    int64
	mappedAt    uintptr // the address of its first byte in memory
	complete    atomic.Bool
	closedCtx   context.Context // ends when the file is closed; for reads without a context
	cancelReads context.CancelFunc
}

// minPartialBytes is the size in bytes below which a file is fetched at once, which is as fast.
var minPartialBytes int64 = 32 << 20 // a variable, so that tests need no large files

const (
	maxParallelFetches = 128      // requests in parallel: a store has a high latency, even for a few bytes
	maxFetchGap        = 32 << 10 // maximum gap in bytes between two spans that one request fetches
	maxFetchBytes      = 2 << 20  // maximum bytes of a request
)

// newPartial fetches the first pages of a file. It returns nil if the source is nil.
func newPartial(ctx context.Context, source Source, file *os.File) (*partialFile, error) {
	if source == nil {
		return nil, nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	p := &partialFile{source: source, file: file, size: info.Size()}
	p.closedCtx, p.cancelReads = context.WithCancel(context.Background())
	return p, p.fetchSpans(ctx, boltfile.Span{Len: boltfile.MaxPageSize + boltfile.MetaEnd})
}

// fetchForOpen fetches the content that opening the file and every search read.
func (p *partialFile) fetchForOpen(ctx context.Context) error {
	if p.size < minPartialBytes {
		return p.waitComplete(ctx)
	}
	// Walk the tree level by level. Meanwhile goroutines fetch the values of earlier levels.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var values sync.WaitGroup
	fetch := func(spans []boltfile.Span) error {
		err := p.fetchSpans(ctx, spans...)
		if err != nil {
			stop(err)
		}
		return err
	}
	w := boltfile.Walk{
		File:       p.file,
		Size:       p.size,
		Fetch:      fetch,
		WalkLeaves: func(bucket [][]byte) bool { return !isLookup(bucket) },
		VisitValues: func(level []boltfile.Value) {
			var spans []boltfile.Span
			for _, v := range level {
				if !isRows(v.Bucket, v.Key) {
					spans = append(spans, v.Span)
				}
			}
			values.Go(func() { _ = fetch(spans) })
		},
	}
	if err := w.Run(ctx); err != nil {
		stop(corruptError(p.file.Name(), err, "B+tree")) // an earlier cause, of a failed fetch, stays
	}
	values.Wait()
	return context.Cause(ctx)
}

// isLookup reports whether a bucket is read by lookupBucket.get, so that its leaves are fetched on demand.
func isLookup(bucket [][]byte) bool {
	if len(bucket) < 2 {
		return false
	}
	name := string(bucket[1])
	return name == string(layout.BucketIDs) || name == string(layout.BucketPayload) ||
		name == string(layout.BucketFields) && len(bucket) == 3
}

// isRows reports whether a value is the factors or residuals of a chunk.
func isRows(bucket [][]byte, key []byte) bool {
	return len(bucket) == 3 && string(bucket[1]) == string(layout.BucketChunks) &&
		(string(key) == string(layout.KeyFactors) || string(key) == string(layout.KeyResiduals))
}

// isComplete reports whether the file is known to be complete.
func (p *partialFile) isComplete() bool { return p == nil || p.complete.Load() }

// waitComplete waits until the file is complete.
func (p *partialFile) waitComplete(ctx context.Context) error {
	if p.isComplete() {
		return nil
	}
	if err := p.source.Ensure(ctx, 0, p.size); err != nil {
		return p.fetchError(err)
	}
	p.complete.Store(true)
	return nil
}

// close cancels reads that wait for the source.
func (p *partialFile) close() {
	if p != nil {
		p.cancelReads()
	}
}

// fetchError adds the path of the file to an error of a fetch. It is [ErrClosed] after close.
func (p *partialFile) fetchError(err error) error {
	if p.closedCtx.Err() != nil && errors.Is(err, context.Canceled) {
		err = ErrClosed
	}
	return fmt.Errorf("%s: fetching it: %w", p.file.Name(), err)
}

// fetchSpans returns when the spans are in the file. It sorts them.
func (p *partialFile) fetchSpans(ctx context.Context, spans ...boltfile.Span) error {
	if p.isComplete() {
		return nil
	}
	// Join close spans into requests, and split long ones.
	slices.SortFunc(spans, func(a, b boltfile.Span) int { return cmp.Compare(a.Off, b.Off) })
	var requests []boltfile.Span
	for _, s := range spans {
		end := min(s.Off+s.Len, p.size)
		if len(requests) > 0 {
			last := &requests[len(requests)-1]
			if s.Off <= last.Off+last.Len+maxFetchGap && end <= last.Off+maxFetchBytes {
				last.Len = max(last.Len, end-last.Off)
				continue
			}
		}
		for ; s.Off < end; s.Off += maxFetchBytes {
			requests = append(requests, boltfile.Span{Off: s.Off, Len: min(end-s.Off, maxFetchBytes)})
		}
	}
	// Only the source checks ctx: after the file was closed, its snapshots can still read bytes that
	// were fetched before.
	err := parallel.Do(context.WithoutCancel(ctx), len(requests), maxParallelFetches, func(i int) error {
		return p.source.Ensure(ctx, requests[i].Off, requests[i].Len)
	})
	if err != nil {
		return p.fetchError(err)
	}
	return nil
}

// spanOf returns the span of a mapped value in the file.
func (p *partialFile) spanOf(value []byte) boltfile.Span {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(value)))
	return boltfile.Span{Off: int64(address - p.mappedAt), Len: int64(len(value))}
}

// ReadAt fetches a span of the file, and reads it.
func (p *partialFile) ReadAt(b []byte, off int64) (int, error) {
	if err := p.fetchSpans(p.closedCtx, boltfile.Span{Off: off, Len: int64(len(b))}); err != nil {
		return 0, err
	}
	return p.file.ReadAt(b, off)
}

// fetchLeaf fetches the leaf in which bbolt searches for a key of a bucket, and the branches that
// lead to it.
func (p *partialFile) fetchLeaf(ctx context.Context, b *bolt.Bucket, key []byte) error {
	page := pageOf(b)
	if page == 0 { // it lies in the leaf of the parent bucket
		return nil
	}
	t, ne := idTree{file: p.file, pageSize: p.pageSize}, binary.NativeEndian
	for range boltfile.MaxDepth {
		off := int64(page) * p.pageSize
		var head [boltfile.PageHeaderSize]byte
		if err := p.fetchSpans(ctx, boltfile.Span{Off: off, Len: p.pageSize}); err != nil {
			return err
		}
		if _, err := p.file.ReadAt(head[:], off); err != nil {
			return err
		}
		if ne.Uint16(head[8:]) != boltfile.PageBranch { // a leaf, with its overflow
			return p.fetchSpans(ctx, boltfile.Span{Off: off, Len: (int64(ne.Uint32(head[12:])) + 1) * p.pageSize})
		}
		// Go to the last child whose first key is not greater than the key.
		branch, err := t.readPage(page, 0)
		if err != nil {
			return corruptError(p.file.Name(), err, "B+tree")
		}
		var keyErr error
		after := sort.Search(int(ne.Uint16(branch[10:])), func(i int) bool {
			const isLeaf = false
			k, _, err := pageKey(branch, isLeaf, i)
			keyErr = errors.Join(keyErr, err)
			return string(k) > string(key)
		})
		if keyErr != nil {
			return corruptError(p.file.Name(), keyErr, "B+tree")
		}
		page = ne.Uint64(branch[boltfile.PageHeaderSize+max(after-1, 0)*boltfile.ElementSize+8:])
	}
	return corruptError(p.file.Name(), nil, "B+tree of more than %d levels", boltfile.MaxDepth)
}

// IsPartial reports whether some of the file may not have been fetched yet.
func (v *Snapshot) IsPartial() bool { return !v.handle.partial.isComplete() }

// WaitComplete waits until the file is complete, if it is being fetched.
func (v *Snapshot) WaitComplete(ctx context.Context) error { return v.handle.partial.waitComplete(ctx) }

// appendRowSpans appends the spans of the factors and residuals of a document of a chunk.
func (v *Snapshot) appendRowSpans(spans []boltfile.Span, c *chunkView, doc uint32) []boltfile.Span {
	p := v.handle.partial
	factors, residuals := c.docRows(doc)
	return append(spans, p.spanOf(factors), p.spanOf(residuals))
}

// fetchArrays fetches the factors and residuals of a chunk.
func (v *Snapshot) fetchArrays(c *chunkView) error {
	p := v.handle.partial
	if p.isComplete() {
		return nil
	}
	return p.fetchSpans(p.closedCtx, p.spanOf(c.Factors), p.spanOf(c.Residuals))
}

// fetchRows fetches the factors and residuals of some documents of a chunk.
func (v *Snapshot) fetchRows(c *chunkView, docs []uint32) error {
	p := v.handle.partial
	if p.isComplete() {
		return nil
	}
	var spans []boltfile.Span
	for _, doc := range docs {
		spans = v.appendRowSpans(spans, c, doc)
	}
	return p.fetchSpans(p.closedCtx, spans...)
}

// FetchPayloads fetches the payloads of documents in parallel, for later calls of [Snapshot.Payload].
func (v *Snapshot) FetchPayloads(ctx context.Context, ordinals []uint32) error {
	if !v.IsPartial() {
		return nil
	}
	return parallel.Do(ctx, len(ordinals), maxParallelFetches, func(i int) (err error) {
		defer Guard(v.file.path, &err)()
		return v.handle.partial.fetchLeaf(ctx, v.payload.Bucket, layout.NumberKey(ordinals[i]))
	})
}
