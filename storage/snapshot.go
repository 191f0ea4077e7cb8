package storage

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Snapshot is the committed state of an index at the time when it was opened. It is safe for
// concurrent use until Close.
type Snapshot struct {
	file       *File
	handle     *handle
	tx         *bolt.Tx
	readTx     *readSnapshot // of tx
	shared     bool          // the transaction belongs to the handle, which ends it
	closed     atomic.Bool
	generation uint64
	lineage    uint64

	fileVersions versions
	header       Header
	state        State
	codec        *codecView
	tombstones   *roaring.Bitmap
	payloadDocs  *roaring.Bitmap // live documents with a payload
	passages     *roaring.Bitmap // live ordinals that are passages
	chunks       []*chunkView
	postings     []*postingsView // of each segment

	sealedTombstones, sealedPayloadDocs, sealedPassages []byte // values that the bitmaps were read from

	ids, payload lookupBucket

	idsFault error // the result of checkIDs; guarded by checkedIDs.mu
}

// Snapshots share the following types where nothing changed between them; see share.go.

// codecView is a codec in the mapped file.
type codecView struct {
	root    uint64 // page of its bucket. 0 means that it lies in the page of the parent bucket
	codec   kernels.Codec
	cutoffs []float32
}

// postingsView is the posting blocks of a segment in the mapped file.
type postingsView struct {
	segment    uint32   // its id
	root       uint64   // see codecView
	blockCount int      // blocks that are not nil
	blocks     [][]byte // sealed, nil for a block without postings
	checked    *passedBits
}

// chunkView is a chunk in the mapped file.
type chunkView struct {
	layout.Chunk
	number  uint32
	segment int    // index of its segment in State.Segments
	root    uint64 // see codecView
	checked *passedBits
}

// Snapshot opens a snapshot of the committed index. After a change that ended in
// [ErrOutcomeUnknown], it shows the state before that.
//
// Errors: [ErrUnfinished], [ErrCorrupt], [ErrClosed].
func (f *File) Snapshot() (*Snapshot, error) { return f.SnapshotAfter(context.Background(), nil) }

// SnapshotAfter is [File.Snapshot] for a caller that has an older snapshot, which must stay open
// during the call. Unchanged content is shared with older instead of being read and checked again.
// Either may be closed first. If older is nil, or of another file, nothing is shared. ctx ends the
// reading of the document tables.
func (f *File) SnapshotAfter(ctx context.Context, older *Snapshot) (v *Snapshot, err error) {
	h, err := f.acquire()
	if err != nil {
		return nil, err
	}
	v = &Snapshot{file: f, handle: h}
	defer func() {
		if err != nil {
			_ = v.Close()
			v = nil
		}
	}()
	defer Guard(f.path, &err)()
	if v.readTx, v.shared, err = f.beginRead(h); err != nil {
		return v, err
	}
	v.tx = v.readTx.tx
	if v.fileVersions, err = readVersions(v.tx.Bucket(layout.RootBucket), f.path); err != nil {
		return v, err
	}
	if v.generation, err = currentGeneration(v.tx, f.path); err != nil {
		return v, err
	}
	// Values are at the same addresses only in the same mapping of the same file.
	sharesPages := older != nil && older.handle == h && older.readTx.from == v.readTx.from
	if !sharesPages || older.generation != v.generation {
		older = nil
	}
	return v, v.load(ctx, older)
}

// Close ends the read transaction of the snapshot. It may be called more than once.
func (v *Snapshot) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	var err error
	if v.tx != nil && !v.shared {
		err = v.file.endSnapshot(v.handle, v.readTx)
	}
	if rerr := v.file.release(v.handle); err == nil {
		err = rerr
	}
	return err
}

func (v *Snapshot) corruptError(err error, format string, args ...any) error {
	return corruptError(v.file.path, err, format, args...)
}

// load reads and checks the header, state, codec, bitmaps and document tables of the snapshot. It
// shares unchanged ones with older, unless that is nil.
func (v *Snapshot) load(ctx context.Context, older *Snapshot) error {
	// The records of the generation.
	gen := v.tx.Bucket(layout.GenerationName(v.generation))
	if gen == nil {
		return v.corruptError(nil, "generation %d is missing", v.generation)
	}
	if err := v.loadHeader(gen); err != nil {
		return err
	}
	var err error
	if v.state, err = readState(gen, v.file.path); err != nil {
		return err
	}
	if err := v.checkNames(gen); err != nil {
		return err
	}
	// Its buckets.
	buckets := make(map[string]*bolt.Bucket, len(layout.GenerationBuckets))
	for _, name := range layout.GenerationBuckets {
		if buckets[string(name)] = gen.Bucket(name); buckets[string(name)] == nil {
			return v.corruptError(nil, "bucket %s is missing", name)
		}
	}
	v.ids.partial, v.payload.partial = v.handle.partial, v.handle.partial
	v.ids.Bucket, v.payload.Bucket = buckets[string(layout.BucketIDs)], buckets[string(layout.BucketPayload)]
	// Codec, chunks and postings, and the bitmaps of documents.
	if err := v.loadCodec(buckets[string(layout.BucketCodec)], older); err != nil {
		return err
	}
	if err := v.loadTombstones(gen.Get(layout.KeyTombstones), older); err != nil {
		return err
	}
	chunks, postings := buckets[string(layout.BucketChunks)], buckets[string(layout.BucketPostings)]
	if err := v.loadSegments(ctx, chunks, postings, older); err != nil {
		return err
	}
	if err := v.loadPayloadDocs(gen.Get(layout.KeyPayloadDocs), older); err != nil {
		return err
	}
	if err := v.loadPassages(gen.Get(layout.KeyPassages), older); err != nil {
		return err
	}
	v.lineage = v.handle.lineage.numberFor(v.generation)
	v.handle.passed.removeUnused(v)
	return nil
}

func (v *Snapshot) loadHeader(gen *bolt.Bucket) error {
	err := decodeJSON(layout.KeyHeader, gen.Get(layout.KeyHeader), &v.header)
	if err == nil {
		err = v.header.Validate()
	}
	if err != nil {
		return v.corruptError(err, "header")
	}
	return nil
}

// checkNames returns an error if the generation has a bucket or key of an unknown name. Such a name
// may be a damaged one, whose value would otherwise seem to be absent. In a file of a later
// FeatureVersion unknown names are allowed.
func (v *Snapshot) checkNames(gen *bolt.Bucket) error {
	if v.fileVersions.feature > FeatureVersion {
		return nil
	}
	return gen.ForEach(func(k, value []byte) error {
		names := layout.GenerationKeys
		if value == nil {
			names = layout.GenerationBuckets
		}
		if !slices.ContainsFunc(names, func(name []byte) bool { return string(name) == string(k) }) {
			return v.corruptError(nil, "there is a name %q in generation %d, which has no meaning", k, v.generation)
		}
		return nil
	})
}

// loadCodec reads the codec from its bucket, or shares that of older.
func (v *Snapshot) loadCodec(b *bolt.Bucket, older *Snapshot) (err error) {
	if older != nil && samePage(b, older.codec.root) {
		v.codec = older.codec
		return nil
	}
	v.codec = &codecView{root: pageOf(b)}
	c, cutoffs := &v.codec.codec, &v.codec.cutoffs
	if *c, err = v.header.EmptyCodec(); err != nil {
		return v.corruptError(err, "header")
	}
	if v.handle.partial.isComplete() {
		adviseValues(b.Get(layout.KeyCentroids))
	}
	data, ok := layout.Unseal(layout.KeyCentroids, b.Get(layout.KeyCentroids))
	if !ok {
		return v.corruptError(layout.ErrChecksum, "centroids")
	}
	c.Centroids.Data = data
	arrays := 1
	for _, a := range layout.CodecArrays(c, cutoffs) {
		sealed := b.Get(a.Key)
		if sealed == nil {
			continue
		}
		arrays++
		raw, ok := layout.Unseal(a.Key, sealed)
		if !ok || len(raw)%4 != 0 {
			return v.corruptError(layout.ErrChecksum, "%s", a.Key)
		}
		*a.Values = layout.Floats(raw)
	}
	if arrays != v.header.Arrays {
		return v.corruptError(nil, "%d arrays of the codec, %d expected", arrays, v.header.Arrays)
	}
	if err := c.Validate(); err != nil {
		return v.corruptError(err, "codec")
	}
	if *cutoffs != nil && len(*cutoffs) != 1<<v.header.Nbits-1 {
		return v.corruptError(nil, "%d cutoffs for %d bits", len(*cutoffs), v.header.Nbits)
	}
	return nil
}

// CodeBytes returns the width in bytes of a stored code.
func CodeBytes(centroids int) int {
	if centroids <= 1<<16 {
		return 2
	}
	return 4
}
