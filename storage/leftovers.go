package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// removeLeftovers removes the leftovers of writers that died: unfinished rewrites, generations that
// were never made current, and documents beyond the committed counters. This process holds the
// exclusive lock of the file, so that no other writer is active.
func (f *File) removeLeftovers() error {
	if err := f.removeOldRewrite(rewriteSuffix); err != nil {
		return err
	}
	if info, err := f.handle.file.Stat(); err == nil && linkCount(f.path, info) > 1 {
		f.removeUnfinishedFirst(info) // its creator died before it could remove the temporary name
	}
	staged, err := f.hasFrameRecord(layout.KeyStaging)
	if err != nil || !staged {
		return err
	}
	f.log.Info("removing what an interrupted writer left", "index", f.path)
	return f.commit(f.handle, func(tx *Tx) error {
		n, err := tx.Current()
		if errors.Is(err, ErrUnfinished) {
			return tx.keepGeneration(0) // generations count from 1: remove all
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
		if err := g.RemoveBeyond(s, s.Docs); err != nil {
			return err
		}
		return tx.keepGeneration(n)
	})
}

// RemoveBeyond removes the content beyond the counters of s: chunks, postings, payloads, field runs
// and ids. Anything else stays, committed or staged. A damaged key is an error, since it may be that
// of content to keep.
//
// The passages of a document may continue beyond s. openParent is the first ordinal of that document,
// so that its own id is removed as well; State.Docs means no document.
func (g *Generation) RemoveBeyond(s State, openParent uint32) error {
	buckets := []struct {
		*bolt.Bucket
		end uint32 // the first number to remove
	}{
		{g.chunks, s.NextChunk},
		{g.postings, s.NextSegment},
		{g.payload, s.Docs},
		{g.bucket.Bucket(layout.BucketFields), s.NextFieldRun},
	}
	for _, b := range buckets {
		if err := deleteNumbersFrom(b.Bucket, b.end); err != nil {
			return corruptError(g.tx.path, err, "content of an interrupted writer")
		}
	}
	// Ids lead to ordinals, so that all of them have to be read.
	var ids [][]byte
	err := g.ids.ForEach(func(id, sealed []byte) error {
		v, ok := layout.Unseal(id, sealed)
		if !ok || !layout.IsValidID(v) {
			return corruptError(g.tx.path, layout.ErrChecksum, "id %q", id)
		}
		ordinal, passages := layout.DecodeID(v)
		if ordinal >= s.Docs || passages > s.Docs-ordinal || passages > 0 && ordinal == openParent {
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

// deleteNumbersFrom removes the keys and buckets with a number of n or more.
func deleteNumbersFrom(b *bolt.Bucket, n uint32) error {
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

// checkNumber checks that the key of a value or bucket is the number with which it was written: the
// checksum of the value, or of a value in the bucket, covers it.
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
		if table := inner.Get(layout.KeyDocs); table != nil { // a chunk: only its table has a checksum
			k, v = layout.KeyDocs, table
		}
		key, value = slices.Concat(number, k), v
	}
	if _, ok := layout.Unseal(key, value); !ok {
		return fmt.Errorf("%s: %w", layout.ValueName([][]byte{number}), layout.ErrChecksum)
	}
	return nil
}

// Discard removes all content staged since the last commit, as the next Open for writing would.
func (f *File) Discard() error {
	return f.exclusive(func(*handle) error { return f.removeLeftovers() })
}
