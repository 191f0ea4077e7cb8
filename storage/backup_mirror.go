package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Reasons why [Snapshot.Mirror] does not change a file.
var (
	// ErrUnrelated means that the file was not copied from the index of the snapshot.
	ErrUnrelated = errors.New("it is no copy of this index")
	// ErrTooManyChanges means that a full copy is cheaper than writing the changes.
	ErrTooManyChanges = errors.New("too much of it has changed")
)

// mirrorEdit is one change that makes a copy equal to its original: it puts or removes a value, or
// creates or removes a bucket.
type mirrorEdit struct {
	path   [][]byte // the buckets that lead to the key
	key    []byte
	value  []byte // to put; unused for a bucket and for a removal
	bucket bool   // the key is that of a bucket
	remove bool
}

// Mirror updates dst, an earlier copy of the file of this snapshot, to the state of the snapshot,
// in one transaction. It compares all values of both; those that differ are verified and written,
// if they have no more than limit bytes together. It returns the number of bytes written, pages of
// the B+tree included.
//
// Errors: [ErrUnrelated], [ErrTooManyChanges], [ErrCorrupt], [ErrReadOnly].
func (v *Snapshot) Mirror(ctx context.Context, dst *File, limit int64) (written int64, err error) {
	if v.closed.Load() {
		return 0, fmt.Errorf("%s: %w", v.file.path, ErrClosed)
	}
	defer Guard(v.file.path, &err)()
	if err := v.WaitComplete(ctx); err != nil {
		return 0, err
	}
	var tx *bolt.Tx
	err = dst.Update(func(t *Tx) error {
		tx = t.btx
		if err := v.checkRelated(t); err != nil {
			return err
		}
		m := &mirror{ctx: ctx, v: v, remaining: limit}
		if err := m.compare(v.tx.Cursor().Bucket(), tx.Cursor().Bucket(), nil); err != nil {
			return err
		}
		for _, e := range m.edits {
			if err := e.applyTo(tx.Cursor().Bucket()); err != nil {
				return err
			}
		}
		if len(m.edits) == 0 {
			return errNoEdits
		}
		return ctx.Err()
	})
	if errors.Is(err, errNoEdits) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stats := tx.Stats()
	return stats.GetPageAlloc() + int64(dst.handle.pageSize), nil
}

var errNoEdits = errors.New("nothing differs")

// checkRelated checks that a file has the same generation and codec as the snapshot. Its error is
// [ErrUnrelated] if not.
func (v *Snapshot) checkRelated(t *Tx) error {
	current, err := t.Current()
	if err != nil {
		return err
	}
	if current != v.generation {
		return fmt.Errorf("%s: %w: generation %d, not %d", t.path, ErrUnrelated, current, v.generation)
	}
	name := layout.GenerationName(current)
	copied := t.btx.Bucket(name)
	if copied == nil || !bytes.Equal(copied.Get(layout.KeyHeader), v.tx.Bucket(name).Get(layout.KeyHeader)) {
		return fmt.Errorf("%s: %w: another codec", t.path, ErrUnrelated)
	}
	return nil
}

// mirror collects the edits of [Snapshot.Mirror].
type mirror struct {
	ctx       context.Context
	v         *Snapshot
	remaining int64 // bytes that may still be written
	edits     []mirrorEdit
}

// compare walks two buckets in key order and appends the edits that make to equal from. to is nil
// if the copy lacks the bucket.
func (m *mirror) compare(from, to *bolt.Bucket, path [][]byte) error {
	if len(path) > 3 { // the generation, its buckets, and the buckets in those
		return m.v.corruptError(nil, "buckets too deep at %s", layout.ValueName(path))
	}
	var toCursor *bolt.Cursor
	var toKey, toValue []byte
	fromCursor := from.Cursor()
	fromKey, fromValue := fromCursor.First()
	if to != nil {
		toCursor = to.Cursor()
		toKey, toValue = toCursor.First()
	}
	for fromKey != nil || toKey != nil {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		order := bytes.Compare(fromKey, toKey)
		switch {
		case fromKey == nil: // only the copy has more keys
			order = 1
		case toKey == nil: // only the original has more keys
			order = -1
		}
		// Remove a key that the original lacks, or has for a bucket in place of a value, or vice versa.
		if order > 0 || order == 0 && (fromValue == nil) != (toValue == nil) {
			removal := mirrorEdit{path: path, key: bytes.Clone(toKey), bucket: toValue == nil, remove: true}
			m.edits = append(m.edits, removal)
		}
		if order <= 0 {
			pair := valuePair{key: fromKey, from: fromValue, to: toValue, inBoth: order == 0}
			if err := m.compareValue(from, to, pair, path); err != nil {
				return err
			}
			fromKey, fromValue = fromCursor.Next()
		}
		if order >= 0 {
			toKey, toValue = toCursor.Next()
		}
	}
	return nil
}

// valuePair is the values of a key in an original and its copy. A nil value is a bucket, or, in the
// copy, may be absent.
type valuePair struct {
	key, from, to []byte
	inBoth        bool // the copy has the key, too
}

// compareValue appends the edits that give the copy the value, or the bucket, of a key.
func (m *mirror) compareValue(from, to *bolt.Bucket, pair valuePair, path [][]byte) error {
	k := pair.key
	if pair.from == nil {
		var toBucket *bolt.Bucket
		if pair.inBoth && pair.to == nil {
			toBucket = to.Bucket(k)
		} else {
			m.edits = append(m.edits, mirrorEdit{path: path, key: k, bucket: true})
		}
		return m.compare(from.Bucket(k), toBucket, append(path[:len(path):len(path)], k))
	}
	if pair.inBoth && pair.to != nil && bytes.Equal(pair.from, pair.to) {
		return nil
	}
	// Verify the value: a backup must not spread damage.
	var fault error
	below, checked := path[min(1, len(path)):], k // below: path without the generation
	if isArray(below, k) && string(k) == string(layout.KeyFactors) {
		checked = layout.KeyResiduals // their checksums cover the factors, too
	}
	if m.v.checkValue(from, below, checked, pair.from, func(err error) { fault = err }); fault != nil {
		return fault
	}
	if m.remaining -= int64(len(k) + len(pair.from)); m.remaining < 0 {
		return ErrTooManyChanges
	}
	m.edits = append(m.edits, mirrorEdit{path: path, key: k, value: pair.from})
	return nil
}

// applyTo makes the change below the root bucket b of the copy.
func (e *mirrorEdit) applyTo(b *bolt.Bucket) error {
	for _, name := range e.path {
		if b = b.Bucket(name); b == nil {
			return fmt.Errorf("%w: bucket %s is missing", ErrCorrupt, layout.ValueName(e.path))
		}
	}
	switch {
	case e.remove && e.bucket:
		return b.DeleteBucket(e.key)
	case e.remove:
		return b.Delete(e.key)
	case e.bucket:
		_, err := b.CreateBucket(e.key)
		return err
	}
	b.FillPercent = 0.9 // most keys are appended
	return b.Put(e.key, e.value)
}

// HasOtherNames reports whether the file has several names (hard links), so that a change would
// show under the others, too.
func HasOtherNames(path string, info os.FileInfo) bool { return linkCount(path, info) > 1 }
