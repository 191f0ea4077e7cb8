package storage

import bolt "go.etcd.io/bbolt"

// NewFieldRun makes an empty run of derived data. It takes the place of one of the same
// number, which only a program can have left that does not know of runs.
func (g *Generation) NewFieldRun(id uint32) error {
	fields, err := g.b.CreateBucketIfNotExists(bucketFields)
	if err != nil {
		return err
	}
	if fields.Bucket(key32(id)) != nil {
		if err := fields.DeleteBucket(key32(id)); err != nil {
			return err
		}
	}
	_, err = fields.CreateBucket(key32(id))
	return err
}

// PutField stores a value of a run.
func (g *Generation) PutField(run uint32, key, value []byte) error {
	return g.b.Bucket(bucketFields).Bucket(key32(run)).Put(key, seal(keyIn(run, key), value))
}

// DeleteFieldRun removes a run.
func (g *Generation) DeleteFieldRun(id uint32) error {
	fields := g.b.Bucket(bucketFields)
	if fields == nil || fields.Bucket(key32(id)) == nil {
		return nil
	}
	return fields.DeleteBucket(key32(id))
}

// FieldRun returns a function that reads the values of a run of the state, where they
// lie in the file: they are there until the view is closed.
func (v *View) FieldRun(id uint32) func(key []byte) ([]byte, error) {
	return func(key []byte) (value []byte, err error) {
		defer Guard(v.file.path, &err)()
		v.mu.Lock()
		defer v.mu.Unlock()
		var run *bolt.Bucket
		if fields := v.tx.Bucket(generationName(v.generation)).Bucket(bucketFields); fields != nil {
			run = fields.Bucket(key32(id))
		}
		if run == nil {
			return nil, v.bad(nil, "field run %d is missing", id)
		}
		value, ok := unseal(keyIn(id, key), run.Get(key))
		if !ok {
			return nil, v.bad(errChecksum, "value %s of field run %d", valueName([][]byte{key}), id)
		}
		return value, nil
	}
}
