package storage

import (
	"bytes"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Which documents are deleted, and which have a payload, is said by two bitmaps of a
// generation, whose sizes are in its state. So a payload that comes or goes writes no
// chunk, and a payload or bitmap that is lost is missed.

// DocSets are sets of the ordinals of a state.
type DocSets struct {
	Deleted *roaring.Bitmap
	Payload *roaring.Bitmap // those that are live and have a payload
}

// DocSets returns those of the view, as copies.
func (v *View) DocSets() DocSets {
	return DocSets{Deleted: v.tombstones.Clone(), Payload: v.payloadDocs.Clone()}
}

// PutDocSets stores the sets of a state that is to be put.
func (g *Generation) PutDocSets(s *State, sets DocSets) error {
	if err := putBitmap(g.bucket, layout.KeyTombstones, sets.Deleted); err != nil {
		return err
	}
	s.PayloadDocs = uint32(sets.Payload.GetCardinality())
	return putBitmap(g.bucket, layout.KeyPayloadDocs, sets.Payload)
}

// putBitmap stores a bitmap unless it is there already; an empty one is absent.
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

// readBitmap reads what putBitmap stored, into memory of its own.
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

// loadTombstones reads which documents are deleted.
func (v *View) loadTombstones(sealed []byte, older *View) (err error) {
	v.tombSealed = sealed
	if older != nil && bytes.Equal(sealed, older.tombSealed) {
		v.tombstones = older.tombstones
	} else if v.tombstones, err = readBitmap(layout.KeyTombstones, sealed); err != nil {
		return v.corrupt(err, "tombstones")
	}
	if n := v.tombstones.GetCardinality(); n != uint64(v.state.Docs-v.state.Live) {
		return v.corrupt(nil, "%d tombstones for %d documents of which %d are live", n, v.state.Docs, v.state.Live)
	}
	return nil
}

// loadPayloadDocs reads which documents have a payload.
func (v *View) loadPayloadDocs(sealed []byte, older *View) (err error) {
	v.payloadSealed = sealed
	if older != nil && bytes.Equal(sealed, older.payloadSealed) {
		v.payloadDocs = older.payloadDocs
	} else if v.payloadDocs, err = readBitmap(layout.KeyPayloadDocs, sealed); err != nil {
		return v.corrupt(err, "bitmap of the documents with payload")
	}
	n := v.payloadDocs.GetCardinality()
	if n != uint64(v.state.PayloadDocs) || n > 0 && v.payloadDocs.Maximum() >= v.state.Docs || v.payloadDocs.Intersects(v.tombstones) {
		return v.corrupt(nil, "the bitmap of the documents with payload has %d, which are not %d live ones", n, v.state.PayloadDocs)
	}
	return nil
}

// StagedPayloads are the documents of a generation that nobody sees yet that have a
// payload.
func (g *Generation) StagedPayloads() *roaring.Bitmap {
	docs := roaring.New()
	c := g.payload.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if len(k) == 4 {
			docs.Add(layout.NumberOfKey(k))
		}
	}
	return docs
}
