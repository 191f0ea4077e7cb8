package storage

import (
	"bytes"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/kernels"
)

var keyBuilding = []byte("building")

// PutBuilding stores what a build that is under way needs to go on, should it be
// interrupted: JSON of its own making, about a generation that nobody sees yet. It
// belongs into the transaction that stages what it tells of, and goes when the
// generation becomes current, or is swept away.
func (tx *Tx) PutBuilding(v any) error {
	b, err := encodeJSON(keyBuilding, v)
	if err != nil {
		return err
	}
	return tx.root.Put(keyBuilding, b)
}

// Building reads what PutBuilding stored; ok is false if there is nothing. Only a file
// that was opened with Options.Resume has it.
func (f *File) Building(to any) (ok bool, err error) {
	err = f.reading(func(tx *bolt.Tx, _ *handle) error {
		sealed := tx.Bucket(rootBucket).Get(keyBuilding)
		if sealed == nil {
			return nil
		}
		ok = true
		if err := decodeJSON(keyBuilding, sealed, to); err != nil {
			return corrupt(f.path, err, "what an interrupted build left")
		}
		return nil
	})
	return ok, err
}

// reading runs fn in a read transaction.
func (f *File) reading(fn func(*bolt.Tx, *handle) error) (err error) {
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
	return h.db.View(func(tx *bolt.Tx) error { return fn(tx, h) })
}

// Staged returns header and codec of a generation that nobody sees yet. The arrays are
// copies.
func (f *File) Staged(generation uint64) (h Header, c *kernels.Codec, cutoffs []float32, err error) {
	err = f.reading(func(tx *bolt.Tx, handle *handle) error {
		gen := tx.Bucket(generationName(generation))
		if gen == nil || gen.Bucket(bucketCodec) == nil {
			return corrupt(f.path, nil, "generation %d is missing", generation)
		}
		v := &View{file: f, h: handle, tx: tx, generation: generation}
		if err := decodeJSON(keyHeader, gen.Get(keyHeader), &v.header); err != nil {
			return v.bad(err, "header")
		}
		if err := v.header.validate(); err != nil {
			return v.bad(err, "header")
		}
		if err := v.loadCodec(gen.Bucket(bucketCodec), nil); err != nil {
			return err
		}
		copied := v.codec.codec
		copied.Centroids.Data = bytes.Clone(copied.Centroids.Data)
		h, c, cutoffs = v.header, &copied, slices.Clone(v.codec.cutoffs)
		return nil
	})
	return h, c, cutoffs, err
}

// Keep removes what a generation that nobody sees yet has beyond the counters of a
// state; the rest stays staged.
func (g *Generation) Keep(s State) error { return g.sweepBeyond(s) }

// StagedChunk reads the lengths of the documents of a chunk, and their codes, valid
// until the transaction ends.
func (g *Generation) StagedChunk(number uint32) (first uint32, lengths []uint32, codes []byte, err error) {
	b := g.chunks.Bucket(key32(number))
	if b == nil {
		return 0, nil, nil, corrupt(g.tx.path, nil, "chunk %d is missing", number)
	}
	sealed, ok := unseal(keyIn(number, keyDocs), b.Get(keyDocs))
	if !ok {
		return 0, nil, nil, corrupt(g.tx.path, errChecksum, "document table of chunk %d", number)
	}
	t, err := parseDocTable(sealed)
	if err != nil {
		return 0, nil, nil, corrupt(g.tx.path, err, "chunk %d", number)
	}
	for i := range t.count {
		lengths = append(lengths, t.length(i))
	}
	if codes, ok = unseal(keyIn(number, keyCodes), b.Get(keyCodes)); !ok || len(codes) < tailBytes {
		return 0, nil, nil, corrupt(g.tx.path, errChecksum, "codes of chunk %d", number)
	}
	return t.first, lengths, codes[:len(codes)-tailBytes], nil
}

// StagedPayload reads the payload of a document, nil if it has none, valid until the
// transaction ends.
func (g *Generation) StagedPayload(ordinal uint32) ([]byte, error) {
	k := key32(ordinal)
	sealed := g.payload.Get(k)
	if sealed == nil {
		return nil, nil
	}
	p, ok := unseal(k, sealed)
	if !ok {
		return nil, corrupt(g.tx.path, errChecksum, "payload of document %d", ordinal)
	}
	return p, nil
}

// hasBuilding tells whether a build left what it needs to go on, and its generation.
func (f *File) hasBuilding() (has bool, err error) {
	err = f.h.db.View(func(tx *bolt.Tx) error {
		has = tx.Bucket(rootBucket).Get(keyBuilding) != nil
		return nil
	})
	return has, err
}
