package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
)

// tailBytes follow codes, factors and residuals, so that a kernel may read
// whole vectors past the last token.
const tailBytes = 1024

// View is the index as it was when the view was taken. It is safe for
// concurrent use until Close.
type View struct {
	file       *File
	h          *handle
	tx         *bolt.Tx
	shared     bool // the transaction is the handle's
	closed     atomic.Bool
	generation uint64
	lineage    uint64

	header     Header
	state      State
	codec      *codecView
	tombstones *roaring.Bitmap
	tombSealed []byte // what they were read from
	chunks     []*chunkView
	postings   []*postingsView // of each segment

	mu      *sync.Mutex // bbolt's buckets are not safe for concurrent use
	ids     *bolt.Bucket
	payload *bolt.Bucket

	idsFault error // what checkIDs found; guarded by checkedIDs.mu
}

// What follows is shared by the views in which it is the same; see share.go.

type codecView struct {
	root    uint64 // page of its bucket; 0: it lies in the page of the one above
	codec   kernels.Codec
	cutoffs []float32
}

type postingsView struct {
	segment uint32
	root    uint64
	found   int
	blocks  [][]byte // sealed; nil where there are no postings
}

type chunkView struct {
	number                    uint32
	segment                   int
	root                      uint64
	docs                      docTable
	chunk                     kernels.Chunk
	codes, factors, residuals []byte // sealed
	mu                        sync.Mutex
	codesChecked, restChecked bool
}

// checkedValues remembers, over the views of one file, which values passed
// their checksum: committed chunks never change. Those that the newest state does
// not name any more, since additions have merged their segments, are forgotten in
// time.
type checkedValues struct {
	m sync.Map // checkedKey → nothing
	n atomic.Int64
}

func (c *checkedValues) has(k checkedKey) bool {
	_, ok := c.m.Load(k)
	return ok
}

func (c *checkedValues) remember(k checkedKey) {
	if _, there := c.m.LoadOrStore(k, struct{}{}); !there {
		c.n.Add(1)
	}
}

// prune forgets what v does not name, once that may be half of what is remembered.
// A value that is still in use by others is then checked again.
func (c *checkedValues) prune(v *View) {
	inUse := 2 * len(v.chunks)
	for _, seg := range v.state.Segments {
		inUse += seg.Blocks
	}
	if c.n.Load() <= 2*int64(inUse) {
		return
	}
	chunks, segments := make(map[uint32]bool, len(v.chunks)), make(map[uint32]bool, len(v.state.Segments))
	for i := range v.chunks {
		chunks[v.chunks[i].number] = true
	}
	for _, seg := range v.state.Segments {
		segments[seg.ID] = true
	}
	c.m.Range(func(key, _ any) bool {
		k := key.(checkedKey)
		used := chunks
		if k.what == 'p' {
			used = segments
		}
		if k.generation != v.generation || !used[k.a] {
			if _, there := c.m.LoadAndDelete(key); there {
				c.n.Add(-1)
			}
		}
		return true
	})
}

type checkedKey struct {
	generation uint64
	what       byte // 'c' codes, 'r' residuals and factors, 'p' postings
	a, b       uint32
}

// View takes a picture of the committed index: after a change that ended in
// [ErrOutcomeUnknown], of what was committed before it.
//
// Errors: [ErrUnfinished], [ErrCorrupt], [ErrClosed].
func (f *File) View() (*View, error) { return f.ViewAfter(context.Background(), nil) }

// ViewAfter is View for who has an older view, which stays open meanwhile: what has
// not changed since is shared with it instead of being read and checked again. Either
// may be closed first. Of another file, or nil, there is nothing to share. Reading
// the document tables ends with ctx.
func (f *File) ViewAfter(ctx context.Context, older *View) (v *View, err error) {
	h, err := f.acquire()
	if err != nil {
		return nil, err
	}
	v = &View{file: f, h: h, mu: new(sync.Mutex)}
	defer func() {
		if err != nil {
			_ = v.Close()
			v = nil
		}
	}()
	defer Guard(f.path, &err)()
	tx, shared, err := f.begin(h)
	if err != nil {
		return v, err
	}
	if v.tx = tx; shared != nil {
		v.shared, v.mu = true, shared
		v.mu.Lock()
		defer v.mu.Unlock()
	}
	if v.generation, err = currentGeneration(v.tx, f.path); err != nil {
		return v, err
	}
	if older != nil && (older.h != h || older.generation != v.generation) {
		older = nil
	}
	return v, v.load(ctx, older)
}

// Close lets go of the view. It may be called more than once.
func (v *View) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	var err error
	if v.tx != nil && !v.shared {
		err = v.tx.Rollback()
	}
	if rerr := v.file.release(v.h); err == nil {
		err = rerr
	}
	return err
}

func (v *View) bad(err error, format string, args ...any) error {
	return corrupt(v.file.path, err, format, args...)
}

func (v *View) load(ctx context.Context, older *View) error {
	gen := v.tx.Bucket(generationName(v.generation))
	if gen == nil {
		return v.bad(nil, "generation %d is missing", v.generation)
	}
	if err := decodeJSON(keyHeader, gen.Get(keyHeader), &v.header); err != nil {
		return v.bad(err, "header")
	}
	if err := v.header.validate(); err != nil {
		return v.bad(err, "header")
	}
	if err := decodeJSON(keyState, gen.Get(keyState), &v.state); err != nil {
		return v.bad(err, "state")
	}
	if err := v.state.validate(); err != nil {
		return v.bad(err, "state")
	}
	buckets := make(map[string]*bolt.Bucket, len(generationBuckets))
	for _, name := range generationBuckets {
		if buckets[string(name)] = gen.Bucket(name); buckets[string(name)] == nil {
			return v.bad(nil, "bucket %s is missing", name)
		}
	}
	v.ids, v.payload = buckets[string(bucketIDs)], buckets[string(bucketPayload)]
	if err := v.loadCodec(buckets[string(bucketCodec)], older); err != nil {
		return err
	}
	if err := v.loadTombstones(gen.Get(keyTombstones), older); err != nil {
		return err
	}
	if err := v.loadSegments(ctx, buckets[string(bucketChunks)], buckets[string(bucketPostings)], older); err != nil {
		return err
	}
	v.h.checks.prune(v)
	return nil
}

func (v *View) loadTombstones(sealed []byte, older *View) error {
	v.tombSealed = sealed
	switch {
	case older != nil && bytes.Equal(sealed, older.tombSealed):
		v.tombstones = older.tombstones
	case sealed == nil:
		v.tombstones = roaring.New()
	default:
		b, ok := unseal(keyTombstones, sealed)
		if !ok {
			return v.bad(errChecksum, "tombstones")
		}
		v.tombstones = roaring.New()
		if err := v.tombstones.UnmarshalBinary(b); err != nil { // into memory of its own
			return v.bad(err, "tombstones")
		}
	}
	if n := v.tombstones.GetCardinality(); n != uint64(v.state.Docs-v.state.Live) {
		return v.bad(nil, "%d tombstones for %d documents of which %d are live", n, v.state.Docs, v.state.Live)
	}
	return nil
}

func (v *View) loadCodec(b *bolt.Bucket, older *View) error {
	if older != nil && samePage(b, older.codec.root) {
		v.codec = older.codec
		return nil
	}
	h := &v.header
	typ, err := floatType(h.CentroidType)
	if err != nil {
		return v.bad(err, "header")
	}
	cb, err := h.codebook()
	if err != nil {
		return v.bad(err, "header")
	}
	data, ok := unseal(keyCentroids, b.Get(keyCentroids))
	if !ok {
		return v.bad(errChecksum, "centroids")
	}
	v.codec = &codecView{root: pageOf(b), codec: kernels.Codec{
		Centroids: kernels.Centroids{K: h.Centroids, Dim: h.Dim, Type: typ, Data: data},
		Codebook:  cb,
		FactorMax: h.FactorMax,
	}}
	c := v.codec
	arrays := 1
	for _, x := range []struct {
		key []byte
		dst *[]float32
	}{{keyCutoffs, &c.cutoffs}, {keyDimScale, &c.codec.DimScale}, {keyCentroidScale, &c.codec.CentroidScale}} {
		sealed := b.Get(x.key)
		if sealed == nil {
			continue
		}
		arrays++
		b, ok := unseal(x.key, sealed)
		if !ok || len(b)%4 != 0 {
			return v.bad(errChecksum, "%s", x.key)
		}
		for i := 0; i < len(b); i += 4 {
			*x.dst = append(*x.dst, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		}
	}
	if arrays != h.Arrays {
		return v.bad(nil, "%d arrays of the codec, %d expected", arrays, h.Arrays)
	}
	if err := c.codec.Validate(); err != nil {
		return v.bad(err, "codec")
	}
	if c.cutoffs != nil && len(c.cutoffs) != 1<<h.Nbits-1 {
		return v.bad(nil, "%d cutoffs for %d bits", len(c.cutoffs), h.Nbits)
	}
	return nil
}

// CodeBytes is the width of a stored code.
func CodeBytes(centroids int) int {
	if centroids <= 1<<16 {
		return 2
	}
	return 4
}
