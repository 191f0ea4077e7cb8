package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// sweep removes what writers that died have left behind: generations that were
// never made current, documents beyond the committed counters, and half-made
// rewrites. The exclusive lock is held, so nobody else is at work.
func (f *File) sweep() error {
	if err := f.sweepRewrite(rewriteSuffix); err != nil {
		return err
	}
	if info, err := f.handle.file.Stat(); err == nil && linkCount(f.path, info) > 1 {
		f.sweepFirst(info) // its maker died between giving it its name and taking away the first one
	}
	staged, err := f.has(layout.KeyStaging)
	if err != nil || !staged {
		return err
	}
	f.log.Info("removing what an interrupted writer left", "index", f.path)
	return f.commit(f.handle, func(tx *Tx) error {
		n, err := tx.Current()
		if errors.Is(err, ErrUnfinished) {
			return tx.finish(0) // generations count from 1: none stays
		} else if err != nil {
			return err
		}
		g, err := tx.Generation(n)
		if err != nil {
			return err
		}
		s, err := g.State()
		if err != nil {
			return err
		}
		if err := g.Keep(s, s.Docs); err != nil {
			return err
		}
		return tx.finish(n)
	})
}

// Keep removes what is beyond the counters of a state; the rest stays as it is, staged or not.
// Nothing is removed whose key is damaged: it may be of something that is not beyond them. open is
// the first ordinal of a document whose passages may continue after the state, so that its own id
// is beyond it; State.Docs means that there is none.
func (g *Generation) Keep(s State, open uint32) error {
	buckets := []struct {
		*bolt.Bucket
		from uint32
	}{{g.chunks, s.NextChunk}, {g.postings, s.NextSegment}, {g.payload, s.Docs}, {g.bucket.Bucket(layout.BucketFields), s.NextFieldRun}}
	for _, b := range buckets {
		if err := deleteFrom(b.Bucket, b.from); err != nil {
			return corrupt(g.tx.path, err, "what an interrupted writer left")
		}
	}
	var ids [][]byte
	err := g.ids.ForEach(func(id, sealed []byte) error {
		v, ok := layout.Unseal(id, sealed)
		if !ok || !layout.ValidID(v) {
			return corrupt(g.tx.path, layout.ErrChecksum, "id %q", id)
		}
		if ordinal, n := layout.SplitID(v); ordinal >= s.Docs || n > s.Docs-ordinal || n > 0 && ordinal == open {
			ids = append(ids, bytes.Clone(id))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := g.ids.Delete(id); err != nil {
			return err
		}
	}
	return nil
}

// deleteFrom removes the keys (or buckets) numbered n and above.
func deleteFrom(b *bolt.Bucket, n uint32) error {
	var deletions []func() error
	c := b.Cursor()
	for k, v := c.Seek(layout.NumberKey(n)); k != nil; k, v = c.Next() {
		if err := checkNumber(b, k, v); err != nil {
			return err
		}
		remove := b.Delete
		if v == nil {
			remove = b.DeleteBucket
		}
		key := bytes.Clone(k)
		deletions = append(deletions, func() error { return remove(key) })
	}
	for _, remove := range deletions {
		if err := remove(); err != nil {
			return err
		}
	}
	return nil
}

// checkNumber makes sure that a value, or one of a bucket, has the number that
// it was written with.
func checkNumber(b *bolt.Bucket, number, value []byte) error {
	key := number
	if value == nil {
		inner := b.Bucket(number)
		if inner == nil {
			return fmt.Errorf("bucket %s: %w", layout.ValueName([][]byte{number}), errKeyOrder)
		}
		k, v := inner.Cursor().First()
		if k == nil {
			return nil
		}
		if table := inner.Get(layout.KeyDocs); table != nil { // of a chunk, of which its checksum covers the number
			k, v = layout.KeyDocs, table
		}
		key, value = slices.Concat(number, k), v
	}
	if _, ok := layout.Unseal(key, value); !ok {
		return fmt.Errorf("%s: %w", layout.ValueName([][]byte{number}), layout.ErrChecksum)
	}
	return nil
}

// Discard removes what has been staged since the last commit, as the next open
// for writing would.
func (f *File) Discard() error {
	return f.exclusive(func(*handle) error { return f.sweep() })
}
