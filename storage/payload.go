package storage

import (
	"bytes"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// A generation has three bitmaps of ordinals: those that are deleted, have a payload, and are
// passages. So adding or removing a payload writes no chunk. The state has the sizes of the bitmaps,
// so that a lost payload or bitmap is detected.

// DocSets are the sets of ordinals of a state.
type DocSets struct {
	Deleted *roaring.Bitmap
	Payload *roaring.Bitmap // live ordinals with a payload
	// Passages are the live ordinals that are passages of a document.
	Passages *roaring.Bitmap
}

// CloneDocSets returns copies of the sets of the snapshot.
func (v *Snapshot) CloneDocSets() DocSets {
	return DocSets{Deleted: v.tombstones.Clone(), Payload: v.payloadDocs.Clone(), Passages: v.passages.Clone()}
}

// PutDocSets stores the sets of a state, and sets their sizes in it. Call it before
// [Generation.PutState].
func (g *Generation) PutDocSets(s *State, sets DocSets) error {
	if err := putBitmap(g.bucket, layout.KeyTombstones, sets.Deleted); err != nil {
		return err
	}
	s.PayloadDocs = uint32(sets.Payload.GetCardinality())
	if err := putBitmap(g.bucket, layout.KeyPayloadDocs, sets.Payload); err != nil {
		return err
	}
	s.Passages = uint32(sets.Passages.GetCardinality())
	return putBitmap(g.bucket, layout.KeyPassages, sets.Passages)
}

// putBitmap stores a bitmap unless it is unchanged. An empty one is stored as no value.
func putBitmap(b *bolt.Bucket, key []byte, bm *roaring.Bitmap) error {
	if bm.IsEmpty() {
		return b.Delete(key)
	}
	bm = bm.Clone()
	bm.RunOptimize()
	data, err := bm.ToBytes()
	if err != nil {
		return err
	}
	if data = layout.Seal(key, data); bytes.Equal(b.Get(key), data) {
		return nil
	}
	return b.Put(key, data)
}

// readBitmap returns a copy of a bitmap that putBitmap stored.
func readBitmap(key, sealed []byte) (*roaring.Bitmap, error) {
	bm := roaring.New()
	if sealed == nil {
		return bm, nil
	}
	data, ok := layout.Unseal(key, sealed)
	if !ok {
		return nil, layout.ErrChecksum
	}
	return bm, bm.UnmarshalBinary(data)
}

// loadTombstones reads the set of deleted documents, or shares that of older.
func (v *Snapshot) loadTombstones(sealed []byte, older *Snapshot) (err error) {
	v.sealedTombstones = sealed
	if older != nil && bytes.Equal(sealed, older.sealedTombstones) {
		v.tombstones = older.tombstones
	} else if v.tombstones, err = readBitmap(layout.KeyTombstones, sealed); err != nil {
		return v.corruptError(err, "tombstones")
	}
	if n := v.tombstones.GetCardinality(); n != uint64(v.state.Docs-v.state.Live) {
		return v.corruptError(nil, "%d tombstones for %d documents of which %d are live", n, v.state.Docs, v.state.Live)
	}
	return nil
}

// loadPayloadDocs reads the set of documents with a payload, or shares that of older.
func (v *Snapshot) loadPayloadDocs(sealed []byte, older *Snapshot) (err error) {
	v.sealedPayloadDocs = sealed
	if older != nil && bytes.Equal(sealed, older.sealedPayloadDocs) {
		v.payloadDocs = older.payloadDocs
	} else if v.payloadDocs, err = readBitmap(layout.KeyPayloadDocs, sealed); err != nil {
		return v.corruptError(err, "bitmap of the documents with payload")
	}
	n := v.payloadDocs.GetCardinality()
	if n != uint64(v.state.PayloadDocs) || n > 0 && v.payloadDocs.Maximum() >= v.state.Docs ||
		v.payloadDocs.Intersects(v.tombstones) {
		return v.corruptError(nil, "the bitmap of the documents with payload has %d, which are not %d live ones",
			n, v.state.PayloadDocs)
	}
	return nil
}

// loadPassages reads the set of passages, or shares that of older.
func (v *Snapshot) loadPassages(sealed []byte, older *Snapshot) (err error) {
	v.sealedPassages = sealed
	if older != nil && bytes.Equal(sealed, older.sealedPassages) {
		v.passages = older.passages
	} else if v.passages, err = readBitmap(layout.KeyPassages, sealed); err != nil {
		return v.corruptError(err, "bitmap of the passages")
	}
	n := v.passages.GetCardinality()
	if n != uint64(v.state.Passages) || n > 0 && v.passages.Maximum() >= v.state.Docs ||
		v.passages.Intersects(v.tombstones) {
		return v.corruptError(nil, "the bitmap of the passages has %d, which are not %d live ones", n, v.state.Passages)
	}
	return nil
}

// StagedPayloads returns the documents with a payload, staged ones included.
func (g *Generation) StagedPayloads() *roaring.Bitmap {
	docs := roaring.New()
	c := g.payload.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if len(k) == 4 {
			docs.Add(layout.NumberFromKey(k))
		}
	}
	return docs
}

// NewFieldRun creates an empty run of derived data.
func (g *Generation) NewFieldRun(id uint32) error {
	_, err := g.bucket.Bucket(layout.BucketFields).CreateBucket(layout.NumberKey(id))
	return err
}

// PutField stores a value of a run.
func (g *Generation) PutField(run uint32, key, value []byte) error {
	b := g.bucket.Bucket(layout.BucketFields).Bucket(layout.NumberKey(run))
	return b.Put(key, layout.Seal(layout.ChecksumKey(run, key), value))
}

// DeleteFieldRun removes a run.
func (g *Generation) DeleteFieldRun(id uint32) error {
	return g.bucket.Bucket(layout.BucketFields).DeleteBucket(layout.NumberKey(id))
}

// FieldRun returns a function that reads the values of a run of the state. The values are mapped
// memory, which is valid until the snapshot is closed.
func (v *Snapshot) FieldRun(id uint32) func(key []byte) ([]byte, error) {
	find := sync.OnceValues(func() (run *lookupBucket, err error) {
		defer Guard(v.file.path, &err)()
		fields := v.tx.Bucket(layout.GenerationName(v.generation)).Bucket(layout.BucketFields)
		if b := fields.Bucket(layout.NumberKey(id)); b != nil {
			return &lookupBucket{Bucket: b, partial: v.handle.partial}, nil
		}
		return nil, v.corruptError(nil, "field run %d is missing", id)
	})
	return func(key []byte) (value []byte, err error) {
		defer Guard(v.file.path, &err)()
		run, err := find()
		if err != nil {
			return nil, err
		}
		sealed, err := run.get(key)
		if err != nil {
			return nil, err
		}
		value, ok := layout.Unseal(layout.ChecksumKey(id, key), sealed)
		if !ok {
			return nil, v.corruptError(layout.ErrChecksum, "value %s of field run %d",
				layout.ValueName([][]byte{key}), id)
		}
		return value, nil
	}
}
