package storage

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// inPlace makes sure that what a snapshot has of its codec, chunks and postings lies where its own
// transaction finds it, and passes its checksums there.
func inPlace(v *Snapshot) error {
	gen := v.tx.Bucket(layout.GenerationName(v.generation))
	chunks := gen.Bucket(layout.BucketChunks)
	// bbolt may have copied a small bucket.
	if got := gen.Bucket(layout.BucketCodec).Get(layout.KeyCentroids); v.codec.root != 0 && &got[0] != &v.codec.codec.Centroids.Data[0] {
		return errors.New("centroids are elsewhere")
	}
	for i, c := range v.chunks {
		b := chunks.Bucket(layout.NumberKey(c.number))
		if pageOf(b) != c.root {
			return fmt.Errorf("chunk %d lies at page %d, not %d", i, pageOf(b), c.root)
		}
		for _, x := range []struct{ key, held []byte }{{layout.KeyCodes, c.Codes}, {layout.KeyFactors, c.Factors}, {layout.KeyResiduals, c.Residuals}} {
			if got := b.Get(x.key); unsafe.SliceData(got) != unsafe.SliceData(x.held) || len(got) != len(x.held)+layout.TailBytes {
				return fmt.Errorf("%s of chunk %d are elsewhere", x.key, i)
			}
		}
		for doc := range c.Table.Count {
			if err := errors.Join(c.CheckCodes(doc), c.CheckRows(doc)); err != nil {
				return fmt.Errorf("document %d of chunk %d is not what it was: %w", doc, i, err)
			}
		}
		table, _ := layout.Unseal(layout.ChecksumKey(c.number, layout.KeyDocs), b.Get(layout.KeyDocs))
		if got, err := layout.ParseDocTable(table); err != nil || got.Count > 0 && unsafe.SliceData(got.IDBytes(0)) != unsafe.SliceData(c.Table.IDBytes(0)) {
			return fmt.Errorf("document table of chunk %d is elsewhere: %v", i, err)
		}
	}
	for i, p := range v.postings {
		b := gen.Bucket(layout.BucketPostings).Bucket(layout.NumberKey(p.segment))
		for n, held := range p.blocks {
			if p.root == 0 {
				break
			}
			if unsafe.SliceData(b.Get(layout.NumberKey(uint32(n)))) != unsafe.SliceData(held) {
				return fmt.Errorf("postings %d of segment %d are elsewhere", n, i)
			}
		}
	}
	return nil
}

// What is shared with an older snapshot lies where the newer one finds it too, and
// stays there when the older one is closed and its pages are written anew.
func TestViewsShareWhatHasNotChanged(t *testing.T) {
	path := writeTestIndex(t)
	f := openWriting(t, path)
	defer func() { require.NoError(t, f.Close()) }()
	older, err := f.Snapshot()
	require.NoError(t, err)
	held, err := f.Snapshot()
	require.NoError(t, err)
	then, err := contents(held)
	require.NoError(t, err)
	rounds := 400
	if !effort.Long() {
		rounds = 60
	}
	mappings := 1
	for i := range rounds {
		require.NoError(t, appendDocs(f, testDoc{fmt.Sprint("n", i), []uint16{0, 1, uint16(i % 3)}, "p"}))
		v, err := f.SnapshotAfter(context.Background(), older)
		require.NoError(t, err)
		if v.readTx.from == older.readTx.from {
			require.Equal(t, len(older.chunks), v.SharedChunks(older))
		} else {
			require.True(t, files.EmulateWindows)
			mappings++
		}
		require.Len(t, v.chunks, len(older.chunks)+1)
		require.NoError(t, older.Close())
		require.NoError(t, inPlace(v))
		require.Zero(t, v.codec.root, "three centroids take no page of their own")
		require.NotSame(t, v.codec, older.codec)
		older = v
		if i == rounds/3 { // from here on its pages are used again
			now, err := contents(held)
			require.NoError(t, err)
			require.Equal(t, then, now)
			require.NoError(t, held.Close())
		}
		if i%20 == 0 {
			fresh, err := f.Snapshot()
			require.NoError(t, err)
			require.Zero(t, fresh.SharedChunks(v))
			want, err := contents(fresh)
			require.NoError(t, err)
			got, err := contents(v)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.NoError(t, fresh.Close())
		}
	}
	require.Equal(t, files.EmulateWindows, mappings > 1)
	require.Equal(t, 1, f.handle.db.Stats().OpenTxN)

	// Nothing has changed but a record beside the generation.
	require.NoError(t, f.Update(func(tx *Tx) error { return tx.PutNote("x", 1) }))
	v, err := f.SnapshotAfter(context.Background(), older)
	require.NoError(t, err)
	require.Equal(t, len(v.chunks), v.SharedChunks(older))
	require.Same(t, v.tombstones, older.tombstones)
	require.NoError(t, older.Close())
	require.NoError(t, v.Close())
}

// Numbers of chunks and segments that were committed are not given again, also when what
// had them is gone: snapshots share by them what they do not look up.
func TestNumbersAreGivenOnce(t *testing.T) {
	f := openWriting(t, writeTestIndex(t))
	defer func() { require.NoError(t, f.Close()) }()
	for name, again := range map[string]func(*Generation) error{
		"chunk":   func(g *Generation) error { return g.PutChunk(SealChunk(0, &DocTable{}, nil, nil, nil)) },
		"segment": func(g *Generation) error { return g.PutPostings(0, 0, nil) },
	} {
		require.ErrorIs(t, f.Update(func(tx *Tx) error {
			g, _, err := currentState(tx)
			if err != nil {
				return err
			}
			if err := errors.Join(g.DeleteChunk(0), g.DeletePostings(0)); err != nil {
				return err
			}
			return again(g)
		}), ErrInternal, name)
	}
}

// The snapshot after a commit looks up what the commit brought, however much is there.
func TestViewsLookUpWhatHasChanged(t *testing.T) {
	f := openWriting(t, writeTestIndex(t))
	defer func() { require.NoError(t, f.Close()) }()
	v, err := f.Snapshot()
	require.NoError(t, err)
	var lookups []int64
	for i := range effort.Cases(60, 300) {
		require.NoError(t, appendDocs(f, testDoc{fmt.Sprint("n", i), []uint16{0}, "p"}))
		next, err := f.SnapshotAfter(context.Background(), v)
		require.NoError(t, err)
		require.NoError(t, v.Close())
		v = next
		stats := v.tx.Stats()
		lookups = append(lookups, stats.GetCursorCount()) // of buckets and values
	}
	last := len(lookups) - 2
	t.Logf("look-ups of a view of 10 chunks: %d, of %d: %d", lookups[8], last+2, lookups[last])
	require.Equal(t, lookups[8], lookups[last])
	require.NoError(t, inPlace(v))
	require.NoError(t, v.Close())
}

// A snapshot of another file has nothing to share.
func TestViewAfterAnotherFile(t *testing.T) {
	var files [2]*File
	var views [2]*Snapshot
	for i := range files {
		f, err := Open(context.Background(), writeTestIndex(t), Options{})
		require.NoError(t, err)
		files[i] = f
		views[i], err = f.Snapshot()
		require.NoError(t, err)
	}
	v, err := files[0].SnapshotAfter(context.Background(), views[1])
	require.NoError(t, err)
	require.Zero(t, v.SharedChunks(views[1]))
	require.NotSame(t, v.codec, views[1].codec)
	require.NoError(t, v.VerifyUnshared(views[1]))
	for i := range files {
		require.NoError(t, views[i].Close())
		require.NoError(t, files[i].Close())
	}
	require.NoError(t, v.Close())
}
