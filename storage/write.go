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
func (f *File) exclusive(fn func(*handle) error) error {
	if err := f.lockWriter(); err != nil {
		return err
	}
	defer f.writer.Unlock()
	return f.withHandle(fn)
}

// lockWriter waits to be the only writer.
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

// withHandle calls fn with the file, which stays open meanwhile.
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

// NewGeneration makes an empty generation that nobody sees yet and returns its
// number. The codec's arrays are copied into the file.
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

// nextGeneration is a number that no generation has.
func (tx *Tx) nextGeneration() (uint64, error) {
	next := tx.after + 1
	err := tx.btx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if g, ok := layout.GenerationNumber(name); ok {
			next = max(next, g+1)
		}
		return nil
	})
	return next, err
}

// putCodec stores the arrays of a codec, and says how many these are.
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

// MarkStaging notes that the transactions that follow write what is not yet
// committed, so that it is looked for if they are never finished.
func (tx *Tx) MarkStaging() error {
	return tx.root.Put(layout.KeyStaging, layout.Seal(layout.KeyStaging, nil))
}

// Current is the number of the committed generation.
func (tx *Tx) Current() (uint64, error) { return currentGeneration(tx.btx, tx.path) }

// MakeCurrent flips the pointer to generation n and removes all others.
// Readers that hold a view of another one keep it.
func (tx *Tx) MakeCurrent(n uint64) error {
	v := binary.LittleEndian.AppendUint64(nil, n)
	if err := tx.root.Put(layout.KeyCurrent, layout.Seal(layout.KeyCurrent, v)); err != nil {
		return err
	}
	return tx.finish(n)
}

// finish removes every generation but the one that stays, and the mark of
// staging.
func (tx *Tx) finish(keep uint64) error {
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

// Generation gives access to generation n.
func (tx *Tx) Generation(n uint64) (*Generation, error) {
	b := tx.btx.Bucket(layout.GenerationName(n))
	if b == nil {
		return nil, corrupt(tx.path, nil, "generation %d is missing", n)
	}
	g := &Generation{tx: tx, bucket: b}
	for _, x := range []struct {
		name []byte
		dst  **bolt.Bucket
	}{{layout.BucketChunks, &g.chunks}, {layout.BucketIDs, &g.ids}, {layout.BucketPayload, &g.payload}, {layout.BucketPostings, &g.postings}} {
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
	bucket                         *bolt.Bucket
	chunks, ids, payload, postings *bolt.Bucket
	before                         *State // see committed
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
		return s, corrupt(path, err, "state")
	}
	return s, nil
}

// committed is the state before the transaction; that of a new generation is empty. Its
// numbers are not given again, since views take what they know of them for what it was.
func (g *Generation) committed() (*State, error) {
	if g.before == nil {
		s := State{}
		if g.bucket.Get(layout.KeyState) != nil {
			var err error
			if s, err = g.State(); err != nil {
				return nil, err
			}
		}
		g.before = &s
	}
	return g.before, nil
}

// PutState commits everything below the counters of s, and ends staging. The sets that
// belong to it are put before ([Generation.PutDocSets]), unless they stay.
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

// SealChunk makes what is stored of a chunk. The arrays are the file's from then on, which may
// write behind their ends.
func SealChunk(number uint32, docs *DocTable, codes, factors, residuals []byte) *SealedChunk {
	c := &SealedChunk{number: number}
	table := appendDocTable(nil, docs, sumsOf(number, docs, codes, factors, residuals))
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

// sumsOf are the checksums of the documents of a chunk: two each, of its codes and of the rest.
func sumsOf(number uint32, docs *DocTable, codes, factors, residuals []byte) (sums []uint32) {
	tokens := max(len(factors)/2, 1)
	code, row, summer, lo := len(codes)/tokens, len(residuals)/tokens, layout.NewDocSummer(number), 0
	for doc, n := range docs.Lengths {
		hi := lo + int(n)
		sums = append(sums, summer.Codes(doc, codes[lo*code:hi*code]))
		sums = append(sums, summer.Rows(doc, factors[2*lo:2*hi], residuals[lo*row:hi*row]))
		lo = hi
	}
	return sums
}

// PutChunk stores a chunk under its number, which is not in use. The chunk has a bucket of its
// own, so that its pages are never rewritten when neighbours are added.
func (g *Generation) PutChunk(c *SealedChunk) error {
	if s, err := g.committed(); err != nil {
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

// PutPostings stores one posting block of a segment, made by [AppendPostings].
func (g *Generation) PutPostings(segment, block uint32, data []byte) error {
	if s, err := g.committed(); err != nil {
		return err
	} else if segment < s.NextSegment {
		return fmt.Errorf("%w: segment %d was committed once", ErrInternal, segment)
	}
	b, err := g.postings.CreateBucketIfNotExists(layout.NumberKey(segment))
	if err != nil {
		return err
	}
	b.FillPercent = 1
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

// PutRun maps the id of a document to its passages, which are among the n ordinals, above 0, from
// first on. The tree also has the ids of ordinals, so that no two ids are equal.
func (g *Generation) PutRun(id string, first, n uint32) error {
	return g.ids.Put([]byte(id), layout.Seal([]byte(id), layout.AppendID(nil, first, n)))
}

// HasID reports whether an id is mapped to an ordinal or to passages, committed or staged.
func (g *Generation) HasID(id string) bool { return g.ids.Get([]byte(id)) != nil }

// DeleteID removes an id.
func (g *Generation) DeleteID(id string) error { return g.ids.Delete([]byte(id)) }

// PutPayload stores what is given back with a document.
func (g *Generation) PutPayload(ordinal uint32, p []byte) error {
	k := layout.NumberKey(ordinal)
	return g.payload.Put(k, layout.Seal(k, append(make([]byte, 0, len(p)+layout.ChecksumSize), p...)))
}

// DeletePayload removes it.
func (g *Generation) DeletePayload(ordinal uint32) error {
	return g.payload.Delete(layout.NumberKey(ordinal))
}

// PutNote stores a small JSON document beside the format record: facts about
// the file that are no part of the index's content and its digest.
func (tx *Tx) PutNote(name string, v any) error {
	return tx.putRecord(layout.NoteKey(name), v)
}

// putRecord stores a JSON record of the frame.
func (tx *Tx) putRecord(key []byte, v any) error {
	b, err := encodeJSON(key, v)
	if err != nil {
		return err
	}
	return tx.root.Put(key, b)
}

// Note reads what PutNote stored; ok is false if there is nothing.
func (v *Snapshot) Note(name string, dst any) (ok bool, err error) {
	defer Guard(v.file.path, &err)()
	return readRecord(v.tx, layout.NoteKey(name), v.file.path, "note "+name, dst)
}
