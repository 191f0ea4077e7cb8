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
	// ErrUnrelated: the file was not copied from the index of the view.
	ErrUnrelated = errors.New("it is no copy of this index")
	// ErrManyChanges: there are more than are worth it.
	ErrManyChanges = errors.New("too much of it has changed")
)

// edit is one difference between two files: a value to be put at the end of a
// path of buckets, or a key or bucket to be removed.
type edit struct {
	path   [][]byte
	key    []byte
	value  []byte // nil: remove
	bucket bool   // key is a bucket, to be removed or made
	remove bool
}

// Mirror makes a file, which is an earlier copy of this one, hold the same
// values again, in one transaction. All values of both are compared; those that
// differ are checked and written, if they come to no more than most bytes. It
// returns how many bytes were written, pages of the B+tree included.
//
// Errors: [ErrUnrelated], [ErrManyChanges], [ErrCorrupt], [ErrReadOnly].
func (v *Snapshot) Mirror(ctx context.Context, dst *File, most int64) (written int64, err error) {
	if v.closed.Load() {
		return 0, fmt.Errorf("%s: %w", v.file.path, ErrClosed)
	}
	defer Guard(v.file.path, &err)()
	if err := v.Whole(ctx); err != nil {
		return 0, err
	}
	var tx *bolt.Tx
	err = dst.Update(func(t *Tx) error {
		tx = t.btx
		if err := v.related(t); err != nil {
			return err
		}
		m := &mirror{ctx: ctx, v: v, left: most}
		if err := m.compare(v.tx.Cursor().Bucket(), tx.Cursor().Bucket(), nil); err != nil {
			return err
		}
		for _, e := range m.edits {
			if err := e.apply(tx.Cursor().Bucket()); err != nil {
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

// related makes sure that a file has the same generation and codec parameters.
func (v *Snapshot) related(t *Tx) error {
	n, err := t.Current()
	if err != nil {
		return err
	}
	if n != v.generation {
		return fmt.Errorf("%s: %w: generation %d, not %d", t.path, ErrUnrelated, n, v.generation)
	}
	name := layout.GenerationName(n)
	theirs := t.btx.Bucket(name)
	if theirs == nil || !bytes.Equal(theirs.Get(layout.KeyHeader), v.tx.Bucket(name).Get(layout.KeyHeader)) {
		return fmt.Errorf("%s: %w: another codec", t.path, ErrUnrelated)
	}
	return nil
}

// mirror gathers the differences between two files.
type mirror struct {
	ctx   context.Context
	v     *Snapshot
	left  int64 // bytes that may still be written
	edits []edit
}

// compare walks two buckets side by side; to is nil if there is none.
func (m *mirror) compare(from, to *bolt.Bucket, path [][]byte) error {
	if len(path) > 3 { // the generation, and buckets in buckets of it
		return m.v.corrupt(nil, "buckets too deep at %s", layout.ValueName(path))
	}
	var dc *bolt.Cursor
	var dk, dv []byte
	sc := from.Cursor()
	sk, sv := sc.First()
	if to != nil {
		dc = to.Cursor()
		dk, dv = dc.First()
	}
	for sk != nil || dk != nil {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		order := bytes.Compare(sk, dk)
		switch {
		case sk == nil:
			order = 1
		case dk == nil:
			order = -1
		}
		if order > 0 || order == 0 && (sv == nil) != (dv == nil) {
			m.edits = append(m.edits, edit{path: path, key: bytes.Clone(dk), bucket: dv == nil, remove: true})
		}
		if order <= 0 {
			if err := m.value(from, to, sk, sv, dv, order == 0, path); err != nil {
				return err
			}
			sk, sv = sc.Next()
		}
		if order >= 0 {
			dk, dv = dc.Next()
		}
	}
	return nil
}

// value compares what is under a key; there tells whether the other file has
// something there.
func (m *mirror) value(from, to *bolt.Bucket, k, sv, dv []byte, there bool, path [][]byte) error {
	inner := append(path[:len(path):len(path)], k)
	if sv == nil {
		f, t := from.Bucket(k), (*bolt.Bucket)(nil)
		if there && dv == nil {
			t = to.Bucket(k)
		} else {
			m.edits = append(m.edits, edit{path: path, key: k, bucket: true})
		}
		return m.compare(f, t, inner)
	}
	if there && dv != nil && bytes.Equal(sv, dv) {
		return nil
	}
	var fault error
	below, checked := path[min(1, len(path)):], k
	if isArray(below, k) && string(k) == string(layout.KeyFactors) {
		checked = layout.KeyResiduals // whose checksums are those of the factors too
	}
	if m.v.checkValue(from, below, checked, sv, func(err error) { fault = err }); fault != nil {
		return fault
	}
	if m.left -= int64(len(k) + len(sv)); m.left < 0 {
		return ErrManyChanges
	}
	m.edits = append(m.edits, edit{path: path, key: k, value: sv})
	return nil
}

func (e *edit) apply(b *bolt.Bucket) error {
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
	b.FillPercent = 0.9 // mostly appended to
	return b.Put(e.key, e.value)
}

// SharedWith tells whether the file has more names than one, so that a change
// would show under the others too.
func SharedWith(path string, info os.FileInfo) bool { return linkCount(path, info) > 1 }
