package index

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/storage"
)

// Warming up reads everything: whatever is damaged is found, and nothing else happens.
func TestWarm(t *testing.T) {
	small(t)
	ctx := context.Background()
	path := newPath(t)
	build(t, path, 8, corpus(60, 5, 8, 3), nil)
	var calls atomic.Int64
	reading(t, path, func(s *Snapshot) {
		require.NoError(t, s.Warm(ctx, 2, func(p Progress) { calls.Add(1) }))
		require.EqualValues(t, s.Chunks()+s.Segments(), calls.Load())
		require.NoError(t, s.Warm(ctx, 0, nil))
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, s.Warm(canceled, 1, nil), context.Canceled)
	})
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	found := 0
	for at := 2 * os.Getpagesize(); at < len(data); at += effort.Cases(997, 97) {
		bad := filepath.Join(filepath.Dir(path), "bad.plaid")
		damaged := append([]byte{}, data...)
		damaged[at] ^= 4
		require.NoError(t, os.WriteFile(bad, damaged, 0o600))
		ix, err := Open(ctx, bad, nil)
		if err != nil {
			continue
		}
		s := taken(t, ix)
		if warm := s.Warm(ctx, 1, nil); warm != nil {
			require.ErrorIs(t, warm, storage.ErrCorrupt)
			require.Error(t, s.Verify(ctx))
			found++
		}
		require.NoError(t, s.Close())
		require.NoError(t, ix.Close())
	}
	require.Positive(t, found)
}

func TestReadOnlyIndexRefusesChanges(t *testing.T) {
	path := newPath(t)
	docs := corpus(5, 5, 8, 1)
	build(t, path, 8, docs, nil)
	require.NoError(t, os.WriteFile(path+".rewrite.tmp", []byte("x"), 0o600))
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	_, err = ix.Add(context.Background(), fromDocs(t, 8, corpus(9, 5, 8, 3)[5:]), nil)
	require.ErrorIs(t, err, storage.ErrReadOnly)
	_, _, err = ix.Delete(context.Background(), []string{"d1"})
	require.ErrorIs(t, err, storage.ErrReadOnly)
	require.ErrorIs(t, ix.Compact(context.Background(), nil), storage.ErrReadOnly)
	require.FileExists(t, path+".rewrite.tmp", "a reader touches nothing")
	require.NoError(t, ix.Close())
	requireFile(t, path, docs)
}

func TestClose(t *testing.T) {
	path := newPath(t)
	docs := corpus(5, 5, 8, 1)
	build(t, path, 8, docs, nil)
	ix, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(t, err)
	s := taken(t, ix)
	require.NoError(t, ix.Close())
	require.NoError(t, ix.Close())
	requireIndex(t, s, docs) // still there
	_, err = Open(context.Background(), path, nil)
	require.ErrorIs(t, err, storage.ErrLocked)
	for _, err := range []error{
		second(ix.Snapshot()), second(ix.Add(context.Background(), fromDocs(t, 8, docs), nil)), ix.Compact(context.Background(), nil),
	} {
		require.ErrorIs(t, err, storage.ErrClosed)
	}
	_, _, err = ix.Delete(context.Background(), []string{"d1"})
	require.ErrorIs(t, err, storage.ErrClosed)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	requireFile(t, path, docs)
}

// What was changed in other steps has the same contents, and what differs in one document
// differs in its part alone.
func TestContents(t *testing.T) {
	const dim, parts = 8, 16
	ctx := context.Background()
	small(t)
	docs := corpus(60, 6, dim, 1)
	for i := range docs {
		if i%3 == 0 {
			docs[i].Payload = []byte(`{"n":1}`)
		}
	}
	contents := func(ix *Index) *Contents {
		s := taken(t, ix)
		defer s.Close()
		c, err := s.Contents(ctx, parts)
		require.NoError(t, err)
		return c
	}
	start := newPath(t)
	build(t, start, dim, docs[:20], nil)
	open := func() *Index {
		path := newPath(t)
		ix, err := Open(ctx, start, nil)
		require.NoError(t, err)
		_, err = ix.BackupTo(ctx, path, nil)
		require.NoError(t, err)
		require.NoError(t, ix.Close())
		return writing(t, path)
	}
	one, many := open(), open()
	add(t, one, dim, docs[20:]...)
	_, _, err := one.Delete(ctx, []string{docs[3].ID, docs[30].ID})
	require.NoError(t, err)
	for _, d := range docs[20:] {
		add(t, many, dim, d)
	}
	for _, i := range []int{30, 3} {
		_, _, err := many.Delete(ctx, []string{docs[i].ID})
		require.NoError(t, err)
	}
	require.Equal(t, contents(one), contents(many))
	require.Equal(t, contents(one).Digest(), contents(many).Digest())
	before := contents(many)
	require.NoError(t, many.Compact(ctx, nil))
	require.Equal(t, before, contents(many))

	differing := func(a, b *Contents) (where []int) {
		for i := range a.Groups {
			if a.Groups[i] != b.Groups[i] {
				where = append(where, i)
			}
		}
		return where
	}
	for name, change := range map[string]func(ix *Index) (id string){
		"payload": func(ix *Index) string {
			_, _, err := ix.SetPayload(ctx, map[string][]byte{docs[7].ID: []byte(`{}`)})
			require.NoError(t, err)
			return docs[7].ID
		},
		"empty payload": func(ix *Index) string {
			_, _, err := ix.SetPayload(ctx, map[string][]byte{docs[7].ID: {}})
			require.NoError(t, err)
			return docs[7].ID
		},
		"vectors": func(ix *Index) string {
			d := docs[40]
			d.Tokens = corpus(1, 6, dim, 99)[0].Tokens
			_, err := ix.Add(ctx, fromDocs(t, dim, append(docs[40:40:40], d)), &AddOptions{Replace: true})
			require.NoError(t, err)
			return d.ID
		},
		"deletion": func(ix *Index) string {
			_, _, err := ix.Delete(ctx, []string{docs[50].ID})
			require.NoError(t, err)
			return docs[50].ID
		},
	} {
		ix := open()
		add(t, ix, dim, docs[20:]...)
		_, _, err := ix.Delete(ctx, []string{docs[3].ID, docs[30].ID})
		require.NoError(t, err)
		id := change(ix)
		after := contents(ix)
		part := HashShard(id, parts)
		require.Equal(t, []int{part}, differing(before, after), name)
		require.NotEqual(t, before.Digest(), after.Digest())
		s := taken(t, ix)
		_, err = s.Contents(ctx, 0)
		require.ErrorIs(t, err, ErrOption)
		require.NoError(t, s.Close())
	}
}
