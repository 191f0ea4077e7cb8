package storage

import (
	"bytes"
	"sort"
	"strings"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Versions returns the versions of the file; see [FormatVersion] and [FeatureVersion].
func (v *Snapshot) Versions() (format, feature int) {
	return int(v.fileVersions.format), int(v.fileVersions.feature)
}

// Header returns the header of the generation. Do not change its slices.
func (v *Snapshot) Header() Header { return v.header }

// State returns counters and segments. Do not change its slices.
func (v *Snapshot) State() State { return v.state }

// Generation returns the number of the generation.
func (v *Snapshot) Generation() uint64 { return v.generation }

// Path returns the path of the file.
func (v *Snapshot) Path() string { return v.file.path }

// Codec returns the codec for kernels. Its slices are mapped pages.
func (v *Snapshot) Codec() *kernels.Codec { return &v.codec.codec }

// Cutoffs returns the bucket bounds of a table codebook, nil for uniform levels.
func (v *Snapshot) Cutoffs() []float32 { return v.codec.cutoffs }

// Tombstones returns the deleted ordinals. Do not change the bitmap.
func (v *Snapshot) Tombstones() *roaring.Bitmap { return v.tombstones }

// Passages returns the live ordinals that are passages of a document. Do not change the bitmap.
func (v *Snapshot) Passages() *roaring.Bitmap { return v.passages }

// Chunks returns the number of chunks. Chunks hold consecutive documents.
func (v *Snapshot) Chunks() int { return len(v.chunks) }

// ChunkDocs returns the first ordinal and the token offsets of the documents
// of chunk i.
func (v *Snapshot) ChunkDocs(i int) (first uint32, offsets []uint32) {
	return v.chunks[i].Table.First, v.chunks[i].Offsets
}

// Locate finds the chunk of an ordinal, and the index of the document in it. ok is false for an
// ordinal that was never assigned.
func (v *Snapshot) Locate(ordinal uint32) (chunk, doc int, ok bool) {
	if ordinal >= v.state.Docs {
		return 0, 0, false
	}
	i := sort.Search(len(v.chunks), func(i int) bool { return v.chunks[i].Table.First > ordinal }) - 1
	return i, int(ordinal - v.chunks[i].Table.First), true
}

// ID returns the id of an ordinal, or "" for an ordinal without document.
func (v *Snapshot) ID(ordinal uint32) string {
	chunk, doc, ok := v.Locate(ordinal)
	if !ok {
		return ""
	}
	return v.chunks[chunk].Table.ID(doc)
}

// IDBytes is [Snapshot.ID] without a copy: do not change the bytes, nor read them after the snapshot
// was closed.
func (v *Snapshot) IDBytes(ordinal uint32) []byte {
	chunk, doc, ok := v.Locate(ordinal)
	if !ok {
		return nil
	}
	return v.chunks[chunk].Table.IDBytes(doc)
}

// Live reports whether an ordinal is that of a document that was not deleted.
func (v *Snapshot) Live(ordinal uint32) bool {
	return ordinal < v.state.Docs && !v.tombstones.Contains(ordinal)
}

// Ordinal finds a live document by its id. Before it returns false for the first time, it checks all
// ids of the file ([Snapshot.CheckIDs]), so that damage is not mistaken for an unknown id.
func (v *Snapshot) Ordinal(id string) (ordinal uint32, ok bool, err error) {
	if id == "" {
		return 0, false, nil
	}
	defer Guard(v.file.path, &err)()
	if ordinal, ok, err = v.lookUpID(id); ok || err != nil {
		return ordinal, ok, err
	}
	return 0, false, v.checkIDs()
}

// lookUpID is Ordinal without the check of all ids.
func (v *Snapshot) lookUpID(id string) (ordinal uint32, ok bool, err error) {
	sealed, err := v.ids.get([]byte(id))
	if sealed == nil {
		return 0, false, err
	}
	ordinal, passages, err := v.unsealID([]byte(id), sealed)
	if err != nil || passages > 0 || !v.Live(ordinal) {
		return 0, false, err
	}
	if !v.tableHasID(ordinal, id) {
		return 0, false, v.corruptError(nil, "id %q leads to document %d, which is %q", id, ordinal, v.ID(ordinal))
	}
	return ordinal, true, nil
}

// PassageRange finds the passages of a document by its id: the ordinals among the n from first on
// that are in [Snapshot.Passages]. ok is false if no document with this id is stored as passages.
func (v *Snapshot) PassageRange(id string) (first, n uint32, ok bool, err error) {
	if id == "" || v.state.PassageParents == 0 {
		return 0, 0, false, nil
	}
	defer Guard(v.file.path, &err)()
	sealed, err := v.ids.get([]byte(id))
	if err != nil {
		return 0, 0, false, err
	}
	if sealed == nil {
		return 0, 0, false, v.checkIDs()
	}
	if first, n, err = v.unsealID([]byte(id), sealed); err != nil || n == 0 || first >= v.state.Docs {
		return 0, 0, false, err
	}
	return first, n, true, v.checkPassageRun(id, first, n)
}

// checkPassageRun checks that a document stored as passages has at least one in its range of ordinals.
func (v *Snapshot) checkPassageRun(id string, first, n uint32) error {
	it := v.passages.Iterator()
	it.AdvanceIfNeeded(first)
	if it.HasNext() {
		if passage := it.Next(); passage-first < n && strings.HasPrefix(v.ID(passage), id+"#") {
			return nil
		}
	}
	return v.corruptError(nil, "document %q has no passage among the %d from %d on", id, n, first)
}

// unsealID verifies and decodes a value of the tree of ids. If n is 0, ordinal is that of the id.
// Otherwise the passages of the document with this id are among the n ordinals from ordinal on.
func (v *Snapshot) unsealID(id, sealed []byte) (ordinal, n uint32, err error) {
	b, ok := layout.Unseal(id, sealed)
	if !ok || !layout.IsValidID(b) {
		return 0, 0, v.corruptError(layout.ErrChecksum, "id %q", id)
	}
	ordinal, n = layout.DecodeID(b)
	return ordinal, n, nil
}

// tableHasID reports whether the document table has this id for an ordinal.
func (v *Snapshot) tableHasID(ordinal uint32, id string) bool {
	chunk, doc, ok := v.Locate(ordinal)
	return ok && v.chunks[chunk].Table.HasID(doc, id)
}

// HasPayload reports whether a live document has a payload.
func (v *Snapshot) HasPayload(ordinal uint32) bool {
	return v.payloadDocs.Contains(ordinal)
}

// Payloads returns the number of live documents with a payload.
func (v *Snapshot) Payloads() uint64 { return v.payloadDocs.GetCardinality() }

// Payload returns a copy of the payload of a live document, nil if it has none.
func (v *Snapshot) Payload(ordinal uint32) (p []byte, err error) {
	if !v.HasPayload(ordinal) {
		return nil, nil
	}
	defer Guard(v.file.path, &err)()
	k := layout.NumberKey(ordinal)
	sealed, err := v.payload.get(k)
	if err != nil {
		return nil, err
	}
	b, ok := layout.Unseal(k, sealed)
	if !ok {
		return nil, v.corruptError(layout.ErrChecksum, "payload of document %d", ordinal)
	}
	return bytes.Clone(b), nil
}

// Segments returns the number of segments, each with its own postings.
func (v *Snapshot) Segments() int { return len(v.postings) }

// Postings returns the documents of a segment that have a token with the centroid, or nil.
func (v *Snapshot) Postings(segment int, centroid uint32) (PostingList, error) {
	n := centroid / PostingBlock
	p := v.postings[segment]
	sealed := p.blocks[n]
	if sealed == nil {
		return nil, nil
	}
	if !hasBit(p.checked.codesOrBlocks, n) {
		block, ok := layout.Unseal(layout.ChecksumKey(p.segment, layout.NumberKey(n)), sealed)
		if !ok {
			return nil, v.corruptError(layout.ErrChecksum, "postings %d of segment %d", n, p.segment)
		}
		if err := checkPostingBlock(block); err != nil {
			return nil, v.corruptError(err, "postings %d of segment %d", n, p.segment)
		}
		setBit(p.checked.codesOrBlocks, n)
	}
	return postingList(sealed, centroid), nil // the offsets end before the checksum
}

// bbolt documents a transaction as being for one goroutine. But reads change nothing in a read
// transaction, except for atomic counters: buckets and pages are in the mapped file, and a cursor has
// its own state. So any number of goroutines can read a snapshot at once, and none waits for the disk
// on behalf of another. (The tests run this under the race detector, in case a later bbolt differs.)

// lookupBucket is a bucket of a read transaction in which many goroutines look up keys at once. Cursors
// are pooled: creating one increments a counter of the transaction, for which the processors of all
// readers would contend.
type lookupBucket struct {
	*bolt.Bucket
	cursors sync.Pool
	partial *partialFile
}

// get is [bolt.Bucket.Get] for many goroutines. While the file is being fetched, it first fetches the
// leaf of the key.
func (l *lookupBucket) get(key []byte) ([]byte, error) {
	if !l.partial.isComplete() {
		if err := l.partial.fetchLeaf(l.partial.closedCtx, l.Bucket, key); err != nil {
			return nil, err
		}
		return l.Get(key), nil // Seek could read the next leaf too, which may not have been fetched
	}
	c, ok := l.cursors.Get().(*bolt.Cursor)
	if !ok {
		c = l.Cursor()
	}
	k, value := c.Seek(key)
	l.cursors.Put(c)
	if !bytes.Equal(k, key) {
		return nil, nil
	}
	return value, nil
}
