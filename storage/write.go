package storage

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
)

// Tx is a change to the file; it takes effect when the function given to
// [File.Update] returns nil.
type Tx struct {
	path  string
	after uint64 // see File
	btx   *bolt.Tx
	root  *bolt.Bucket
}

// Update runs fn in a write transaction. Nothing of it remains when fn returns
// an error, when the machine stops before Update has returned, or when writing
// fails; the file can be changed further then. The exception is an error that is
// [ErrOutcomeUnknown]: the last step of the commit failed, all or nothing of the
// transaction will be found when the file is opened again, and until then the
// file shows what it held before and refuses changes with the same error.
func (f *File) Update(fn func(*Tx) error) error {
	return f.exclusive(func(h *handle) error { return f.commit(h, fn) })
}

// exclusive runs fn as the only writer.
func (f *File) exclusive(fn func(*handle) error) (err error) {
	if !f.write {
		return fmt.Errorf("%s: %w", f.path, ErrReadOnly)
	}
	f.writer.Lock()
	defer f.writer.Unlock()
	if f.broken != nil {
		return f.broken
	}
	h, err := f.acquire()
	if err != nil {
		return err
	}
	defer func() {
		if rerr := f.release(h); err == nil {
			err = rerr
		}
	}()
	defer Guard(f.path, &err)()
	return fn(h)
}

// NewGeneration makes an empty generation that nobody sees yet and returns its
// number. The codec's arrays are copied into the file.
func (tx *Tx) NewGeneration(h Header, codec *kernels.Codec, cutoffs []float32) (uint64, error) {
	if err := h.validate(); err != nil {
		return 0, err
	}
	if err := codec.Validate(); err != nil {
		return 0, err
	}
	n := tx.after + 1
	err := tx.btx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if g, ok := isGeneration(name); ok {
			n = max(n, g+1)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := tx.MarkStaging(); err != nil {
		return 0, err
	}
	gen, err := tx.btx.CreateBucket(generationName(n))
	if err != nil {
		return 0, err
	}
	for _, name := range generationBuckets {
		if _, err := gen.CreateBucket(name); err != nil {
			return 0, err
		}
	}
	h.Arrays = 1
	for _, a := range [][]float32{cutoffs, codec.DimScale, codec.CentroidScale} {
		if a != nil {
			h.Arrays++
		}
	}
	header, err := encodeJSON(keyHeader, h)
	if err != nil {
		return 0, err
	}
	if err := gen.Put(keyHeader, header); err != nil {
		return 0, err
	}
	b := gen.Bucket(bucketCodec)
	ct := &codec.Centroids
	if err := b.Put(keyCentroids, seal(keyCentroids, slices.Clone(ct.Data[:ct.K*ct.Dim*ct.Type.Size()]))); err != nil {
		return 0, err
	}
	for _, x := range []struct{ key, values any }{
		{keyCutoffs, cutoffs}, {keyDimScale, codec.DimScale}, {keyCentroidScale, codec.CentroidScale},
	} {
		if err := putFloats(b, x.key.([]byte), x.values.([]float32)); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func putFloats(b *bolt.Bucket, key []byte, values []float32) error {
	if values == nil {
		return nil
	}
	v := make([]byte, 0, 4*len(values)+crcSize)
	for _, f := range values {
		v = binary.LittleEndian.AppendUint32(v, math.Float32bits(f))
	}
	return b.Put(key, seal(key, v))
}

// MarkStaging notes that the transactions that follow write what is not yet
// committed, so that it is looked for if they are never finished.
func (tx *Tx) MarkStaging() error {
	return tx.root.Put(keyStaging, seal(keyStaging, nil))
}

// Current is the number of the committed generation.
func (tx *Tx) Current() (uint64, error) { return currentGeneration(tx.btx, tx.path) }

// MakeCurrent flips the pointer to generation n and removes all others.
// Readers that hold a view of another one keep it.
func (tx *Tx) MakeCurrent(n uint64) error {
	v := binary.LittleEndian.AppendUint64(nil, n)
	if err := tx.root.Put(keyCurrent, seal(keyCurrent, v)); err != nil {
		return err
	}
	return tx.finish(n)
}

// finish removes every generation but the one that stays, and the mark of
// staging.
func (tx *Tx) finish(keep uint64) error {
	var old [][]byte
	err := tx.btx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if g, ok := isGeneration(name); ok && g != keep {
			old = append(old, slices.Clone(name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := tx.btx.DeleteBucket(name); err != nil {
			return err
		}
	}
	return errors.Join(tx.root.Delete(keyStaging), tx.root.Delete(keyBuilding))
}

// Generation gives access to generation n.
func (tx *Tx) Generation(n uint64) (*Generation, error) {
	b := tx.btx.Bucket(generationName(n))
	if b == nil {
		return nil, corrupt(tx.path, nil, "generation %d is missing", n)
	}
	g := &Generation{tx: tx, b: b}
	for _, x := range []struct {
		name []byte
		dst  **bolt.Bucket
	}{{bucketChunks, &g.chunks}, {bucketIDs, &g.ids}, {bucketPayload, &g.payload}, {bucketPostings, &g.postings}} {
		if *x.dst = b.Bucket(x.name); *x.dst == nil {
			return nil, corrupt(tx.path, nil, "bucket %s is missing", x.name)
		}
		(*x.dst).FillPercent = 0.9 // mostly appended to
	}
	return g, nil
}

// Generation changes the content of one generation within a [Tx].
type Generation struct {
	tx                             *Tx
	b                              *bolt.Bucket
	chunks, ids, payload, postings *bolt.Bucket
}

// State returns the committed state.
func (g *Generation) State() (State, error) {
	var s State
	if err := decodeJSON(keyState, g.b.Get(keyState), &s); err != nil {
		return s, corrupt(g.tx.path, err, "state")
	}
	return s, s.validate()
}

// PutState commits everything below the counters of s, and ends staging.
func (g *Generation) PutState(s State) error {
	if err := s.validate(); err != nil {
		return err
	}
	b, err := encodeJSON(keyState, s)
	if err != nil {
		return err
	}
	if err := g.tx.root.Delete(keyStaging); err != nil {
		return err
	}
	return g.b.Put(keyState, b)
}

// PutChunk stores a chunk under a number that is not in use. The chunk has a
// bucket of its own, so that its pages are never rewritten when neighbours are
// added.
func (g *Generation) PutChunk(number uint32, docs *DocTable, codes, factors, residuals []byte) error {
	b, err := g.chunks.CreateBucket(key32(number))
	if err != nil {
		return fmt.Errorf("chunk %d: %w", number, err)
	}
	if err := b.Put(keyDocs, seal(keyIn(number, keyDocs), appendDocTable(nil, docs))); err != nil {
		return err
	}
	for _, a := range []struct{ key, data []byte }{{keyCodes, codes}, {keyFactors, factors}, {keyResiduals, residuals}} {
		v := make([]byte, len(a.data)+tailBytes, len(a.data)+tailBytes+crcSize)
		copy(v, a.data)
		if err := b.Put(a.key, seal(keyIn(number, a.key), v)); err != nil {
			return err
		}
	}
	return nil
}

// DeleteChunk removes a chunk.
func (g *Generation) DeleteChunk(number uint32) error { return g.chunks.DeleteBucket(key32(number)) }

// PutPostings stores one posting block of a segment, made by [AppendPostings].
func (g *Generation) PutPostings(segment, block uint32, data []byte) error {
	b, err := g.postings.CreateBucketIfNotExists(key32(segment))
	if err != nil {
		return err
	}
	b.FillPercent = 1
	k := key32(block)
	return b.Put(k, seal(keyIn(segment, k), data))
}

// DeletePostings removes the postings of a segment.
func (g *Generation) DeletePostings(segment uint32) error {
	if g.postings.Bucket(key32(segment)) == nil {
		return nil
	}
	return g.postings.DeleteBucket(key32(segment))
}

// PutID maps an id to an ordinal.
func (g *Generation) PutID(id string, ordinal uint32) error {
	v := binary.LittleEndian.AppendUint32(nil, ordinal)
	return g.ids.Put([]byte(id), seal([]byte(id), v))
}

// HasID reports whether an id is mapped to an ordinal, committed or staged.
func (g *Generation) HasID(id string) bool { return g.ids.Get([]byte(id)) != nil }

// DeleteID removes an id.
func (g *Generation) DeleteID(id string) error { return g.ids.Delete([]byte(id)) }

// PutPayload stores what is given back with a document.
func (g *Generation) PutPayload(ordinal uint32, p []byte) error {
	k := key32(ordinal)
	return g.payload.Put(k, seal(k, slices.Clone(p)))
}

// DeletePayload removes it.
func (g *Generation) DeletePayload(ordinal uint32) error { return g.payload.Delete(key32(ordinal)) }

// PutTombstones replaces the set of deleted ordinals.
func (g *Generation) PutTombstones(bm *roaring.Bitmap) error {
	if bm.IsEmpty() {
		return g.b.Delete(keyTombstones)
	}
	bm = bm.Clone()
	bm.RunOptimize()
	b, err := bm.ToBytes()
	if err != nil {
		return err
	}
	return g.b.Put(keyTombstones, seal(keyTombstones, b))
}

// PutNote stores a small JSON document beside the format record: facts about
// the file that are no part of the index's content and its digest.
func (tx *Tx) PutNote(name string, v any) error {
	k := noteKey(name)
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.root.Put(k, seal(k, b))
}

// Note reads what PutNote stored; ok is false if there is nothing.
func (v *View) Note(name string, dst any) (ok bool, err error) {
	defer Guard(v.file.path, &err)()
	v.mu.Lock()
	defer v.mu.Unlock()
	k := noteKey(name)
	sealed := v.tx.Bucket(rootBucket).Get(k)
	if sealed == nil {
		return false, nil
	}
	if err := decodeJSON(k, sealed, dst); err != nil {
		return false, v.bad(err, "note %s", name)
	}
	return true, nil
}
