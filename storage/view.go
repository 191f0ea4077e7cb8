package storage

import (
	"encoding/binary"
	"fmt"
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
	closed     atomic.Bool
	generation uint64

	header     Header
	state      State
	codec      kernels.Codec
	cutoffs    []float32
	tombstones *roaring.Bitmap
	chunks     []chunkView
	postings   [][][]byte // per segment and block, sealed

	mu      sync.Mutex // bbolt's buckets are not safe for concurrent use
	ids     *bolt.Bucket
	payload *bolt.Bucket
}

type chunkView struct {
	number                    uint32
	segment                   int
	docs                      docTable
	chunk                     kernels.Chunk
	codes, factors, residuals []byte // sealed
	mu                        sync.Mutex
	codesChecked, restChecked bool
}

// checkedValues remembers, over the views of one file, which values passed
// their checksum: committed chunks never change.
type checkedValues struct{ m sync.Map }

type checkedKey struct {
	generation uint64
	what       byte // 'c' codes, 'r' residuals and factors, 'p' postings
	a, b       uint32
}

// View takes a picture of the committed index.
//
// Errors: [ErrUnfinished], [ErrCorrupt], [ErrClosed].
func (f *File) View() (v *View, err error) {
	h, err := f.acquire()
	if err != nil {
		return nil, err
	}
	v = &View{file: f, h: h}
	defer func() {
		if err != nil {
			_ = v.Close()
			v = nil
		}
	}()
	defer Guard(f.path, &err)()
	if v.tx, err = h.db.Begin(false); err != nil {
		return v, fmt.Errorf("%s: %w", f.path, err)
	}
	if v.generation, err = currentGeneration(v.tx, f.path); err != nil {
		return v, err
	}
	return v, v.load()
}

// Close lets go of the view. It may be called more than once.
func (v *View) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	var err error
	if v.tx != nil {
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

func (v *View) load() error {
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
	if err := v.loadCodec(buckets[string(bucketCodec)]); err != nil {
		return err
	}
	v.tombstones = roaring.New()
	if sealed := gen.Get(keyTombstones); sealed != nil {
		b, ok := unseal(keyTombstones, sealed)
		if !ok {
			return v.bad(errChecksum, "tombstones")
		}
		if err := v.tombstones.UnmarshalBinary(b); err != nil {
			return v.bad(err, "tombstones")
		}
	}
	if n := v.tombstones.GetCardinality(); n != uint64(v.state.Docs-v.state.Live) {
		return v.bad(nil, "%d tombstones for %d documents of which %d are live", n, v.state.Docs, v.state.Live)
	}
	return v.loadSegments(buckets[string(bucketChunks)], buckets[string(bucketPostings)])
}

func (v *View) loadCodec(b *bolt.Bucket) error {
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
	v.codec = kernels.Codec{
		Centroids: kernels.Centroids{K: h.Centroids, Dim: h.Dim, Type: typ, Data: data},
		Codebook:  cb,
		FactorMax: h.FactorMax,
	}
	arrays := 1
	for _, x := range []struct {
		key []byte
		dst *[]float32
	}{{keyCutoffs, &v.cutoffs}, {keyDimScale, &v.codec.DimScale}, {keyCentroidScale, &v.codec.CentroidScale}} {
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
	if err := v.codec.Validate(); err != nil {
		return v.bad(err, "codec")
	}
	if v.cutoffs != nil && len(v.cutoffs) != 1<<h.Nbits-1 {
		return v.bad(nil, "%d cutoffs for %d bits", len(v.cutoffs), h.Nbits)
	}
	return nil
}

func (v *View) loadSegments(chunks, postings *bolt.Bucket) error {
	next := uint32(0)
	total := 0
	for _, seg := range v.state.Segments {
		total += len(seg.Chunks)
	}
	v.chunks = make([]chunkView, 0, total)
	blocks := (v.header.Centroids + PostingBlock - 1) / PostingBlock
	for s := range v.state.Segments {
		seg := &v.state.Segments[s]
		for _, number := range seg.Chunks {
			v.chunks = append(v.chunks, chunkView{number: number, segment: s})
			c := &v.chunks[len(v.chunks)-1]
			if err := v.loadChunk(chunks, c, next); err != nil {
				return err
			}
			next += uint32(c.docs.count)
		}
		if next != seg.FirstDoc+seg.Docs {
			return v.bad(nil, "segment %d ends at document %d, not %d", seg.ID, next, seg.FirstDoc+seg.Docs)
		}
		lists := make([][]byte, blocks)
		found := 0
		if pb := postings.Bucket(key32(seg.ID)); pb != nil {
			for i := range lists {
				if lists[i] = pb.Get(key32(uint32(i))); lists[i] != nil {
					found++
				}
			}
		}
		if found != seg.Blocks {
			return v.bad(nil, "%d posting blocks of segment %d, %d expected", found, seg.ID, seg.Blocks)
		}
		v.postings = append(v.postings, lists)
	}
	return nil
}

func (v *View) loadChunk(chunks *bolt.Bucket, c *chunkView, first uint32) error {
	b := chunks.Bucket(key32(c.number))
	if b == nil {
		return v.bad(nil, "chunk %d is missing", c.number)
	}
	table, ok := unseal(keyIn(c.number, keyDocs), b.Get(keyDocs))
	if !ok {
		return v.bad(errChecksum, "document table of chunk %d", c.number)
	}
	var err error
	if c.docs, err = parseDocTable(table); err != nil {
		return v.bad(err, "chunk %d", c.number)
	}
	if c.docs.first != first {
		return v.bad(nil, "chunk %d begins at document %d, not %d", c.number, c.docs.first, first)
	}
	if c.chunk.Offsets, err = c.docs.offsets(); err != nil {
		return v.bad(err, "chunk %d", c.number)
	}
	c.codes, c.factors, c.residuals = b.Get(keyCodes), b.Get(keyFactors), b.Get(keyResiduals)
	tokens := c.chunk.Tokens()
	c.chunk.CodeBytes = CodeBytes(v.header.Centroids)
	for _, a := range []struct {
		name   []byte
		sealed []byte
		n      int
		dst    *[]byte
	}{
		{keyCodes, c.codes, tokens * c.chunk.CodeBytes, &c.chunk.Codes},
		{keyFactors, c.factors, tokens * 2, &c.chunk.Factors},
		{keyResiduals, c.residuals, tokens * v.codec.RowBytes(), &c.chunk.Residuals},
	} {
		if len(a.sealed) != a.n+tailBytes+crcSize {
			return v.bad(nil, "%s of chunk %d: %d bytes for %d tokens", a.name, c.number, len(a.sealed), tokens)
		}
		*a.dst = a.sealed[:a.n]
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
