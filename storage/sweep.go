package storage

import (
	"bytes"
	"encoding/binary"
	"errors"

	bolt "go.etcd.io/bbolt"
)

// sweep removes what writers that died have left behind: generations that were
// never made current, documents beyond the committed counters, and half-made
// rewrites. The exclusive lock is held, so nobody else is at work.
func (f *File) sweep() error {
	if err := f.sweepRewrite(rewriteSuffix); err != nil {
		return err
	}
	if info, err := f.h.file.Stat(); err == nil && links(info) > 1 {
		f.sweepFirst(info) // its maker died between giving it its name and taking away the first one
	}
	staged := false
	err := f.h.db.View(func(tx *bolt.Tx) error {
		staged = tx.Bucket(rootBucket).Get(keyStaging) != nil
		return nil
	})
	if err != nil || !staged {
		return err
	}
	f.log.Info("removing what an interrupted writer left", "index", f.path)
	return f.commit(f.h, func(tx *Tx) error {
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
		if err := g.sweep(); err != nil {
			return err
		}
		return tx.finish(n)
	})
}

func (g *Generation) sweep() error {
	s, err := g.State()
	if err != nil {
		return err
	}
	return g.sweepBeyond(s)
}

// sweepBeyond removes what is beyond the counters of a state.
func (g *Generation) sweepBeyond(s State) error {
	if err := deleteFrom(g.chunks, s.NextChunk); err != nil {
		return err
	}
	if err := deleteFrom(g.postings, s.NextSegment); err != nil {
		return err
	}
	if err := deleteFrom(g.payload, s.Docs); err != nil {
		return err
	}
	if b := g.b.Bucket(bucketFields); b != nil {
		if err := deleteFrom(b, s.NextFieldRun); err != nil {
			return err
		}
	}
	var ids [][]byte
	err := g.ids.ForEach(func(id, v []byte) error {
		if len(v) >= 4 && binary.LittleEndian.Uint32(v) >= s.Docs {
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
	var keys [][]byte
	var buckets []bool
	c := b.Cursor()
	for k, v := c.Seek(key32(n)); k != nil; k, v = c.Next() {
		keys = append(keys, bytes.Clone(k))
		buckets = append(buckets, v == nil)
	}
	for i, k := range keys {
		var err error
		if buckets[i] {
			err = b.DeleteBucket(k)
		} else {
			err = b.Delete(k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Discard removes what has been staged since the last commit, as the next open
// for writing would.
func (f *File) Discard() error {
	return f.exclusive(func(*handle) error { return f.sweep() })
}
