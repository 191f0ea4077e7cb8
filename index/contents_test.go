package index

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		s, err := ix.Snapshot()
		require.NoError(t, err)
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
		for i := range a.Parts {
			if a.Parts[i] != b.Parts[i] {
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
		part := Place(id, parts)
		require.Equal(t, []int{part}, differing(before, after), name)
		require.NotEqual(t, before.Digest(), after.Digest())
		s, err := ix.Snapshot()
		require.NoError(t, err)
		_, err = s.Contents(ctx, 0)
		require.ErrorIs(t, err, ErrOption)
		require.NoError(t, s.Close())
	}
}
