package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Tx is a change to the file. It takes effect when the function passed to [File.Update] returns nil.
type Tx struct {
	path          string
	minGeneration uint64 // see File.minGeneration
	btx           *bolt.Tx
	root          *bolt.Bucket
}

// Update runs fn in a write transaction. The file stays unchanged if fn returns an error, if the
// machine stops before Update returns, or if writing fails; further changes are possible.
//
// The exception is [ErrOutcomeUnknown], after a failure of the last step of the commit. When the
// file is opened again, it will have all of the transaction or nothing of it. Until then it shows
// the state before, and refuses changes with the same error.
func (f *File) Update(fn func(*Tx) error) error {
	return f.exclusive(func(h *handle) error { return f.commit(h, fn) })
}

// exclusive runs fn while no other goroutine writes to the file.
func (f *File) exclusive(fn func(*handle) error) error {
	if err := f.lockWriter(); err != nil {
		return err
	}
	defer f.writer.Unlock()
	return f.withHandle(fn)
}

// lockWriter waits until no other goroutine writes to the file. The caller unlocks f.writer.
func (f *File) lockWriter() error {
	if !f.write {
		return fmt.Errorf("%s: %w", f.path, ErrReadOnly)
	}
	f.writer.Lock()
	if f.broken != nil {
		defer f.writer.Unlock()
		return f.broken
	}
	return nil
}

// withHandle calls fn with the handle, which stays open until fn returns.
func (f *File) withHandle(fn func(*handle) error) (err error) {
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

// NewGeneration creates an empty generation and returns its number. Readers do not see it before
// [Tx.MakeCurrent]. The arrays of the codec are copied into the file.
func (tx *Tx) NewGeneration(h Header, codec *kernels.Codec, cutoffs []float32) (uint64, error) {
	if err := h.Validate(); err != nil {
		return 0, err
	}
	if err := codec.Validate(); err != nil {
		return 0, err
	}
	n, err := tx.nextGeneration()
	if err != nil {
		return 0, err
	}
	if err := tx.MarkStaging(); err != nil {
		return 0, err
	}
	gen, err := tx.btx.CreateBucket(layout.GenerationName(n))
	if err != nil {
		return 0, err
	}
	for _, name := range layout.GenerationBuckets {
		if _, err := gen.CreateBucket(name); err != nil {
			return 0, err
		}
	}
	if h.Arrays, err = putCodec(gen.Bucket(layout.BucketCodec), codec, cutoffs); err != nil {
		return 0, err
	}
	header, err := encodeJSON(layout.KeyHeader, h)
	if err != nil {
		return 0, err
	}
	return n, gen.Put(layout.KeyHeader, header)
}

// nextGeneration returns an unused number for a generation.
func (tx *Tx) nextGeneration() (uint64, error) {
	next := tx.minGeneration + 1
	err := tx.btx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if g, ok := layout.GenerationNumber(name); ok {
			next = max(next, g+1)
		}
		return nil
	})
	return next, err
}

// putCodec stores the arrays of a codec, and returns their number.
func putCodec(b *bolt.Bucket, codec *kernels.Codec, cutoffs []float32) (arrays int, err error) {
	ct := &codec.Centroids
	centroids := slices.Clone(ct.Data[:ct.K*ct.Dim*ct.Type.Size()])
	if err := b.Put(layout.KeyCentroids, layout.Seal(layout.KeyCentroids, centroids)); err != nil {
		return 0, err
	}
	arrays = 1
	for _, a := range layout.CodecArrays(codec, &cutoffs) {
		if *a.Values == nil {
			continue
		}
		arrays++
		if err := b.Put(a.Key, layout.Seal(a.Key, layout.AppendFloats(nil, *a.Values))); err != nil {
			return 0, err
		}
	}
	return arrays, nil
}

// MarkStaging records that the next transactions stage content that is not committed yet. If the
// writer dies, the next one removes that content.
func (tx *Tx) MarkStaging() error {
	return tx.root.Put(layout.KeyStaging, layout.Seal(layout.KeyStaging, nil))
}

// Current returns the number of the committed generation.
func (tx *Tx) Current() (uint64, error) { return currentGeneration(tx.btx, tx.path) }

// MakeCurrent sets the pointer to generation n and removes all others. Open snapshots of another
// one stay valid.
func (tx *Tx) MakeCurrent(n uint64) error {
	v := binary.LittleEndian.AppendUint64(nil, n)
	if err := tx.root.Put(layout.KeyCurrent, layout.Seal(layout.KeyCurrent, v)); err != nil {
		return err
	}
	return tx.keepGeneration(n)
}

// keepGeneration removes all generations but one, and the records of staging.
func (tx *Tx) keepGeneration(keep uint64) error {
	var old [][]byte
	err := tx.btx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if g, ok := layout.GenerationNumber(name); ok && g != keep {
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
	return errors.Join(tx.root.Delete(layout.KeyStaging), tx.root.Delete(layout.KeyBuilding))
}

// Generation returns generation n for changes.
func (tx *Tx) Generation(n uint64) (*Generation, error) {
	b := tx.btx.Bucket(layout.GenerationName(n))
	if b == nil {
		return nil, corruptError(tx.path, nil, "generation %d is missing", n)
	}
	g := &Generation{tx: tx, bucket: b}
	for _, field := range []struct {
		name []byte
		dst  **bolt.Bucket
	}{
		{layout.BucketChunks, &g.chunks},
		{layout.BucketIDs, &g.ids},
		{layout.BucketPayload, &g.payload},
		{layout.BucketPostings, &g.postings},
	} {
		if *field.dst = b.Bucket(field.name); *field.dst == nil {
			return nil, corruptError(tx.path, nil, "bucket %s is missing", field.name)
		}
		(*field.dst).FillPercent = 0.9 // most keys are appended
	}
	return g, nil
}

// Generation changes the content of one generation within a [Tx].
type Generation struct {
	tx                             *Tx
	bucket                         *bolt.Bucket
	chunks, ids, payload, postings *bolt.Bucket
	cachedState                    *State // cached by committedState
}

// State returns the committed state.
func (g *Generation) State() (State, error) {
	return readState(g.bucket, g.tx.path)
}

// readState reads the state of a generation.
func readState(gen *bolt.Bucket, path string) (s State, err error) {
	if err = decodeJSON(layout.KeyState, gen.Get(layout.KeyState), &s); err == nil {
		err = s.Validate()
	}
	if err != nil {
		return s, corruptError(path, err, "state")
	}
	return s, nil
}

// committedState returns the state before the transaction, which is empty for a new generation. The
// numbers of its chunks and segments are never reused: the handle remembers by number which of them
// have passed their checks.
func (g *Generation) committedState() (*State, error) {
	if g.cachedState == nil {
		s := State{}
		if g.bucket.Get(layout.KeyState) != nil {
			var err error
			if s, err = g.State(); err != nil {
				return nil, err
			}
		}
		g.cachedState = &s
	}
	return g.cachedState, nil
}

// PutState commits everything below the counters of s, and ends staging. If the sets of documents
// changed, call [Generation.PutDocSets] before.
func (g *Generation) PutState(s State) error {
	if err := s.Validate(); err != nil {
		return err
	}
	b, err := encodeJSON(layout.KeyState, s)
	if err != nil {
		return err
	}
	if err := g.tx.root.Delete(layout.KeyStaging); err != nil {
		return err
	}
	return g.bucket.Put(layout.KeyState, b)
}

// SealedChunk is a chunk as it is stored.
type SealedChunk struct {
	number uint32
	values [4]struct{ key, value []byte }
}

// SealChunk encodes a chunk with its checksums. The result has the arrays, and SealChunk may write
// into their spare capacity: the caller must not use them again.
func SealChunk(number uint32, docs *DocTable, codes, factors, residuals []byte) *SealedChunk {
	c := &SealedChunk{number: number}
	table := appendDocTable(nil, docs, docChecksums(number, docs, codes, factors, residuals))
	table = layout.Seal(layout.ChecksumKey(number, layout.KeyDocs), table)
	for i, a := range []struct{ key, value []byte }{
		{layout.KeyDocs, table},
		{layout.KeyCodes, append(codes, layout.ChunkTail[:]...)},
		{layout.KeyFactors, append(factors, layout.ChunkTail[:]...)},
		{layout.KeyResiduals, append(residuals, layout.ChunkTail[:]...)},
	} {
		c.values[i] = a
	}
	return c
}

// docChecksums returns two checksums for each document of a chunk: of its codes, and of its factors and
// residuals.
func docChecksums(number uint32, docs *DocTable, codes, factors, residuals []byte) (sums []uint32) {
	tokens := max(len(factors)/2, 1) // without tokens all arrays are empty
	codeBytes, residualBytes := len(codes)/tokens, len(residuals)/tokens
	summer, first := layout.NewDocChecksummer(number), 0
	for doc, n := range docs.Lengths {
		end := first + int(n)
		sums = append(sums, summer.Codes(doc, codes[first*codeBytes:end*codeBytes]))
		rows := residuals[first*residualBytes : end*residualBytes]
		sums = append(sums, summer.Rows(doc, factors[2*first:2*end], rows))
		first = end
	}
	return sums
}

// PutChunk stores a chunk under its number, which must be new. Each chunk has its own bucket, so
// that adding others never rewrites its pages.
func (g *Generation) PutChunk(c *SealedChunk) error {
	if s, err := g.committedState(); err != nil {
		return err
	} else if c.number < s.NextChunk {
		return fmt.Errorf("%w: chunk %d was committed once", ErrInternal, c.number)
	}
	b, err := g.chunks.CreateBucket(layout.NumberKey(c.number))
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.number, err)
	}
	for _, v := range c.values {
		if err := b.Put(v.key, v.value); err != nil {
			return err
		}
	}
	return nil
}

// DeleteChunk removes a chunk.
func (g *Generation) DeleteChunk(number uint32) error {
	return g.chunks.DeleteBucket(layout.NumberKey(number))
}

// PutPostings stores a posting block of a segment, encoded by [AppendPostings].
func (g *Generation) PutPostings(segment, block uint32, data []byte) error {
	if s, err := g.committedState(); err != nil {
		return err
	} else if segment < s.NextSegment {
		return fmt.Errorf("%w: segment %d was committed once", ErrInternal, segment)
	}
	b, err := g.postings.CreateBucketIfNotExists(layout.NumberKey(segment))
	if err != nil {
		return err
	}
	b.FillPercent = 1 // blocks are appended in order
	k := layout.NumberKey(block)
	return b.Put(k, layout.Seal(layout.ChecksumKey(segment, k), data))
}

// DeletePostings removes the postings of a segment.
func (g *Generation) DeletePostings(segment uint32) error {
	if g.postings.Bucket(layout.NumberKey(segment)) == nil {
		return nil
	}
	return g.postings.DeleteBucket(layout.NumberKey(segment))
}

// PutID maps an id to an ordinal.
func (g *Generation) PutID(id string, ordinal uint32) error {
	return g.ids.Put([]byte(id), layout.Seal([]byte(id), layout.AppendID(nil, ordinal, 0)))
}

// PutPassageRange maps the id of a document to the range of n ordinals, from first on, that contains its
// passages; n is positive. Ids of documents and of ordinals are in one tree, so that all are distinct.
func (g *Generation) PutPassageRange(id string, first, n uint32) error {
	return g.ids.Put([]byte(id), layout.Seal([]byte(id), layout.AppendID(nil, first, n)))
}

// HasID reports whether an id is mapped to an ordinal or to passages, committed or staged.
func (g *Generation) HasID(id string) bool { return g.ids.Get([]byte(id)) != nil }

// DeleteID removes an id.
func (g *Generation) DeleteID(id string) error { return g.ids.Delete([]byte(id)) }

// PutPayload stores the payload of a document.
func (g *Generation) PutPayload(ordinal uint32, p []byte) error {
	k := layout.NumberKey(ordinal)
	return g.payload.Put(k, layout.Seal(k, append(make([]byte, 0, len(p)+layout.ChecksumSize), p...)))
}

// DeletePayload removes the payload of a document.
func (g *Generation) DeletePayload(ordinal uint32) error {
	return g.payload.Delete(layout.NumberKey(ordinal))
}

// PutNote stores a small JSON document under a name: facts about the file that do not belong to the
// content of the index, nor to its digest.
func (tx *Tx) PutNote(name string, v any) error {
	return tx.putFrameJSON(layout.NoteKey(name), v)
}

// putFrameJSON stores a JSON record in the root bucket, the frame of the file.
func (tx *Tx) putFrameJSON(key []byte, v any) error {
	b, err := encodeJSON(key, v)
	if err != nil {
		return err
	}
	return tx.root.Put(key, b)
}

// Note reads a document that [Tx.PutNote] stored. ok is false if none has that name.
func (v *Snapshot) Note(name string, dst any) (ok bool, err error) {
	defer Guard(v.file.path, &err)()
	return readFrameJSON(v.tx, layout.NoteKey(name), v.file.path, "note "+name, dst)
}
