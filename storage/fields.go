package storage

import (
	"sync"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// NewFieldRun makes an empty run of derived data.
func (g *Generation) NewFieldRun(id uint32) error {
	_, err := g.bucket.Bucket(layout.BucketFields).CreateBucket(layout.NumberKey(id))
	return err
}

// PutField stores a value of a run.
func (g *Generation) PutField(run uint32, key, value []byte) error {
	return g.bucket.Bucket(layout.BucketFields).Bucket(layout.NumberKey(run)).Put(key, layout.Seal(layout.ChecksumKey(run, key), value))
}

// DeleteFieldRun removes a run.
func (g *Generation) DeleteFieldRun(id uint32) error {
	return g.bucket.Bucket(layout.BucketFields).DeleteBucket(layout.NumberKey(id))
}

// FieldRun returns a function that reads the values of a run of the state, where they
// lie in the file: they are there until the view is closed.
func (v *View) FieldRun(id uint32) func(key []byte) ([]byte, error) {
	find := sync.OnceValues(func() (run *lookups, err error) {
		defer Guard(v.file.path, &err)()
		fields := v.tx.Bucket(layout.GenerationName(v.generation)).Bucket(layout.BucketFields)
		if b := fields.Bucket(layout.NumberKey(id)); b != nil {
			return &lookups{Bucket: b}, nil
		}
		return nil, v.corrupt(nil, "field run %d is missing", id)
	})
	return func(key []byte) (value []byte, err error) {
		defer Guard(v.file.path, &err)()
		run, err := find()
		if err != nil {
			return nil, err
		}
		value, ok := layout.Unseal(layout.ChecksumKey(id, key), run.get(key))
		if !ok {
			return nil, v.corrupt(layout.ErrChecksum, "value %s of field run %d", layout.ValueName([][]byte{key}), id)
		}
		return value, nil
	}
}
