package storage

import (
	"bytes"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// bbolt says that a transaction is for one goroutine. Of one that only reads, nothing is
// written by reading, but counters, which are atomic: buckets and pages are those of the
// mapped file, and a cursor has all that moves in itself. So any number of goroutines
// read a view at once, and none waits for the disk of another. (The tests run that under
// the race detector, should a later bbolt do otherwise.)

// lookups is a bucket of a read transaction, in which many look for keys at once. Making
// a cursor counts it, which the processors of all readers would have to agree on each
// time; so cursors are kept.
type lookups struct {
	*bolt.Bucket
	cursors sync.Pool
}

// get is [bolt.Bucket.Get].
func (l *lookups) get(key []byte) []byte {
	c, ok := l.cursors.Get().(*bolt.Cursor)
	if !ok {
		c = l.Cursor()
	}
	k, value := c.Seek(key)
	l.cursors.Put(c)
	if !bytes.Equal(k, key) {
		return nil
	}
	return value
}
