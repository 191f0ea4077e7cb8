package storage

import (
	"bytes"
	"encoding/binary"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// PutBuilding stores the progress of a build as JSON, so that the build can be resumed after an
// interruption. Call it in the transaction that stages the content that the progress describes. The
// record is removed when the generation becomes current, or is discarded.
func (tx *Tx) PutBuilding(v any) error {
	return tx.putFrameJSON(layout.KeyBuilding, v)
}

// Building reads the progress that [Tx.PutBuilding] stored. ok is false if none is stored, as in a file
// that was opened for writing without Options.Resume.
func (f *File) Building(dst any) (ok bool, err error) {
	err = f.withReadTx(func(tx *bolt.Tx, _ *handle) (err error) {
		ok, err = readFrameJSON(tx, layout.KeyBuilding, f.path, "what an interrupted build left", dst)
		return err
	})
	return ok, err
}

// withReadTx runs fn in a read transaction.
func (f *File) withReadTx(fn func(*bolt.Tx, *handle) error) error {
	return f.withHandle(func(h *handle) error {
		return h.db.View(func(tx *bolt.Tx) error { return fn(tx, h) })
	})
}

// Staged returns the header and codec of a generation that is not current yet. The arrays are copies.
func (f *File) Staged(generation uint64) (h Header, c *kernels.Codec, cutoffs []float32, err error) {
	err = f.withReadTx(func(tx *bolt.Tx, handle *handle) error {
		gen := tx.Bucket(layout.GenerationName(generation))
		if gen == nil || gen.Bucket(layout.BucketCodec) == nil {
			return corruptError(f.path, nil, "generation %d is missing", generation)
		}
		v := &Snapshot{file: f, handle: handle, tx: tx, generation: generation}
		if err := v.loadHeader(gen); err != nil {
			return err
		}
		if err := v.loadCodec(gen.Bucket(layout.BucketCodec), nil); err != nil {
			return err
		}
		copied := v.codec.codec
		copied.Centroids.Data = bytes.Clone(copied.Centroids.Data)
		h, c, cutoffs = v.header, &copied, slices.Clone(v.codec.cutoffs)
		return nil
	})
	return h, c, cutoffs, err
}

// StagedChunk reads the lengths and codes of the documents of a chunk. The codes are valid until the
// transaction ends.
func (g *Generation) StagedChunk(number uint32) (first uint32, lengths []uint32, codes []byte, err error) {
	b := g.chunks.Bucket(layout.NumberKey(number))
	if b == nil {
		return 0, nil, nil, corruptError(g.tx.path, nil, "chunk %d is missing", number)
	}
	c, err := layout.OpenChunk(number, b.Get)
	if err != nil {
		return 0, nil, nil, corruptError(g.tx.path, err, "chunk %d", number)
	}
	for doc := range c.Table.Count {
		if err := c.CheckCodes(doc); err != nil {
			return 0, nil, nil, corruptError(g.tx.path, err, "codes of document %d, in chunk %d",
				c.Table.First+uint32(doc), number)
		}
		lengths = append(lengths, c.Table.Length(doc))
	}
	return c.Table.First, lengths, c.Codes, nil
}

// StagedPayload reads the payload of a document, nil if it has none. The bytes are valid until the
// transaction ends.
func (g *Generation) StagedPayload(ordinal uint32) ([]byte, error) {
	k := layout.NumberKey(ordinal)
	sealed := g.payload.Get(k)
	if sealed == nil {
		return nil, nil
	}
	p, ok := layout.Unseal(k, sealed)
	if !ok {
		return nil, corruptError(g.tx.path, layout.ErrChecksum, "payload of document %d", ordinal)
	}
	return p, nil
}

// Applied is the last entry of an ordered log of changes that a generation has applied.
type Applied struct {
	// Sequence is the number of the entry. 0 means none.
	Sequence uint64
	// Mark distinguishes the entry from one with the same number in another log; zero means that
	// nothing does.
	Mark [16]byte
}

// PutApplied stores the last log entry that a generation has applied. Call it in the transaction that
// applies the entry. The record does not belong to the content, nor to its digest.
func (tx *Tx) PutApplied(generation uint64, a Applied) error {
	v := binary.LittleEndian.AppendUint64(nil, generation)
	v = binary.LittleEndian.AppendUint64(v, a.Sequence)
	if a.Mark != [16]byte{} {
		v = append(v, a.Mark[:]...)
	}
	return tx.root.Put(layout.KeyApplied, layout.Seal(layout.KeyApplied, v))
}

// Applied reads the entry that [Tx.PutApplied] stored for the generation of the snapshot. It is zero
// if none is stored, as after a rebuild of the index.
func (v *Snapshot) Applied() (a Applied, err error) {
	defer Guard(v.file.path, &err)()
	sealed, err := sealedFrameRecord(v.tx.Bucket(layout.RootBucket), layout.KeyApplied, v.file.path)
	if sealed == nil {
		return a, err
	}
	b, ok := layout.Unseal(layout.KeyApplied, sealed)
	if !ok || len(b) != 16 && len(b) != 32 {
		return a, v.corruptError(layout.ErrChecksum, "the number of the last entry that was applied")
	}
	if binary.LittleEndian.Uint64(b) != v.generation {
		return a, nil
	}
	a.Sequence = binary.LittleEndian.Uint64(b[8:])
	copy(a.Mark[:], b[16:])
	return a, nil
}
