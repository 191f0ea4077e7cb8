package store_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// A folder that is opened for reading is not changed, may be open several times, and keeps
// writers out; what is no index there, or cannot be read, stops nothing.
func TestReadOnly(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := store.Open(ctx, dir, nil)
	require.NoError(t, err)
	c, err := s.Create(ctx, "pets", collection.Config{})
	require.NoError(t, err)
	_, err = s.Create(ctx, "empty", collection.Config{})
	require.NoError(t, err)
	_, err = c.Update(ctx, []collection.DocumentInput{{ID: "cat", Dim: 2, Vectors: []float32{1, 0}}, {ID: "dog", Dim: 2, Vectors: []float32{0, 1}}}, collection.UpdateOptions{})
	require.NoError(t, err)

	_, _, err = store.OpenReadOnly(ctx, dir, nil)
	require.ErrorIs(t, err, storage.ErrLocked)
	require.NoError(t, s.Close(ctx))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o666))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "broken"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken", "index.plaid"), []byte("no index"), 0o666))
	before := list(t, dir)
	open := func() (*store.Store, func(context.Context) error) {
		r, closeAll, err := store.OpenReadOnly(ctx, dir, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"pets"}, r.Names())
		return r, closeAll
	}
	one, closeOne := open()
	_, closeTwo := open()
	pets, err := one.Get("pets")
	require.NoError(t, err)
	v, err := pets.Snapshot(ctx)
	require.NoError(t, err)
	res, err := v.Search(ctx, []search.Query{{Vectors: []float32{0, 1}, Dim: 2}}, search.Options{K: 1})
	require.NoError(t, err)
	require.Equal(t, "dog", res[0].Hits[0].ID)
	require.NoError(t, v.Close())
	_, err = pets.Update(ctx, []collection.DocumentInput{{ID: "x", Dim: 2, Vectors: []float32{1, 0}}}, collection.UpdateOptions{})
	require.ErrorIs(t, err, storage.ErrReadOnly)
	_, err = one.Create(ctx, "new", collection.Config{})
	require.ErrorIs(t, err, collection.ErrUnsupported)
	require.NoError(t, closeOne(ctx))
	require.NoError(t, closeTwo(ctx))
	require.Equal(t, before, list(t, dir))

	s, err = store.Open(ctx, dir, nil) // nothing holds it any more
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
	_, _, err = store.OpenReadOnly(ctx, filepath.Join(dir, "nowhere"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Readers search by words and write nothing beside the index: neither where the file of keywords is
// not there, nor where it shows an older state. Its settings hold for them.
func TestReadOnlyKeywords(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	o := &store.Options{Derive: store.DeriveKeywords(nil)}
	put := func(o *store.Options, id string, search bool) {
		s, err := store.Open(ctx, dir, o)
		require.NoError(t, err)
		c, err := s.Create(ctx, "pets", collection.Config{Tokenizer: collection.TokenizerTrigram})
		if err != nil {
			require.ErrorIs(t, err, collection.ErrExists)
			c, err = s.Get("pets")
			require.NoError(t, err)
		}
		doc := collection.DocumentInput{ID: id, Dim: 2, Vectors: []float32{1, 0}, Metadata: []byte(`{"text":"a ` + id + `fish"}`)}
		_, err = c.Update(ctx, []collection.DocumentInput{doc}, collection.UpdateOptions{})
		require.NoError(t, err)
		if search {
			require.Equal(t, []string{id}, byWords(t, c, id))
		}
		require.NoError(t, s.Close(ctx))
	}
	look := func(text string, want ...string) {
		t.Helper()
		before := list(t, dir)
		for range 2 { // at a time
			r, closeAll, err := store.OpenReadOnly(ctx, dir, o)
			require.NoError(t, err)
			defer func() { require.NoError(t, closeAll(ctx)) }()
			c, err := r.Get("pets")
			require.NoError(t, err)
			require.Equal(t, want, byWords(t, c, text))
		}
		require.Equal(t, before, list(t, dir))
	}
	put(nil, "cat", false)
	look("catfish", "cat")
	put(o, "dog", true)
	require.FileExists(t, filepath.Join(dir, "pets", "index.plaid.keywords"))
	look("tfi", "cat") // part of a word
	put(nil, "rat", false)
	look("atf", "cat", "rat")
}

func byWords(t *testing.T, c *store.Collection, text string) (ids []string) {
	t.Helper()
	v, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	hits, err := v.SearchKeywords(t.Context(), collection.KeywordQuery{Text: text, K: 9})
	require.NoError(t, err)
	for _, h := range hits {
		ids = append(ids, h.ID)
	}
	return ids
}

func list(t *testing.T, dir string) (all []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	return all
}
