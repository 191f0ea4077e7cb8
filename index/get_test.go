package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func TestGet(t *testing.T) {
	docs := corpus(6, 4, 8, 1)
	docs[2].ID, docs[2].Payload = "with payload", []byte(`{"n": 2}`)
	docs[3].ID, docs[3].Tokens = "empty", nil
	for i := range docs {
		if docs[i].ID == "" {
			docs[i].ID = string(rune('a' + i))
		}
	}
	path := newPath(t)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	for i, d := range docs {
		got, err := ix.Get(d.ID)
		require.NoError(t, err)
		require.Equal(t, &Document{ID: d.ID, Ordinal: uint32(i), Tokens: len(d.Tokens) / 8, Payload: d.Payload}, got)
		there, err := ix.Has(d.ID)
		require.NoError(t, err)
		require.True(t, there)
	}
	kept, err := ix.Get("with payload")
	require.NoError(t, err)
	_, _, err = ix.Delete(t.Context(), []string{"with payload"})
	require.NoError(t, err)
	add(t, ix, 8, vectors.Document{ID: "new", Tokens: docs[0].Tokens, Payload: []byte("other")})
	require.Equal(t, `{"n": 2}`, string(kept.Payload), "it is the caller's")
	for _, id := range []string{"with payload", "never", ""} {
		_, err := ix.Get(id)
		require.ErrorIs(t, err, ErrNotFound)
		there, err := ix.Has(id)
		require.NoError(t, err)
		require.False(t, there)
	}
	s, err := ix.Snapshot()
	require.NoError(t, err)
	_, err = s.At(2)
	require.ErrorIs(t, err, ErrNotFound, "deleted")
	_, err = s.At(1000)
	require.ErrorIs(t, err, ErrNotFound)
	d, err := s.At(6)
	require.NoError(t, err)
	require.Equal(t, "new", d.ID)
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())
	_, err = ix.Get("a")
	require.ErrorIs(t, err, storage.ErrClosed)
	_, err = ix.Has("a")
	require.ErrorIs(t, err, storage.ErrClosed)
}
