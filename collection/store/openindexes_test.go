package store

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// openIndex builds an index of documents and opens it.
func openIndex(t *testing.T, o *index.Options, docs ...collection.DocumentInput) *index.Index {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.plaid")
	all := make([]vectors.Document, len(docs))
	for i, d := range docs {
		all[i] = vectors.Document{ID: d.ID, Tokens: d.Vectors, Payload: d.Metadata}
	}
	src, err := vectors.FromDocuments(testDim, all)
	require.NoError(t, err)
	_, err = index.Build(t.Context(), path, src, &index.BuildOptions{Nbits: 8})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, ix.Close())
		requireReleased(t, path)
	})
	return ix
}

// An index that is open already is a collection: one that takes changes where that is
// said, and stays open when the store ends.
func TestOver(t *testing.T) {
	a, b, extra := randomDoc("a", 1), randomDoc("b", 2), randomDoc("extra", 3)
	own := openIndex(t, &index.Options{Write: true}, a, b)
	changing := openIndex(t, &index.Options{Write: true}, a, b) // by the program, not by the store
	s, err := FromIndexes(t.Context(), map[string]OpenIndex{
		"writes": {Index: own, Write: true}, "reads": {Index: changing},
	}, &Options{Derive: DeriveKeywords(nil)})
	require.NoError(t, err)
	defer s.Close(t.Context())
	require.Equal(t, []string{"reads", "writes"}, s.Names())
	writes, err := s.Get("writes")
	require.NoError(t, err)
	reads, err := s.Get("reads")
	require.NoError(t, err)
	st, err := writes.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, st.Documents)

	r, err := writes.Update(t.Context(), []collection.DocumentInput{extra, {Vectors: a.Vectors, Dim: testDim}}, collection.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, []uint64{2, 3}, r.Numbers)
	require.Equal(t, []string{"extra", "3"}, r.IDs)
	n, err := writes.Delete(t.Context(), collection.Selection{Where: conditiontest.Bind(t, "version = 2")})
	require.NoError(t, err)
	require.Equal(t, index.Affected{Documents: 1}, n)
	n, err = writes.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"extra"}}, map[string]json.RawMessage{"word": json.RawMessage(`"zebra"`)})
	require.NoError(t, err)
	require.Equal(t, index.Affected{Documents: 1}, n)
	require.Equal(t, []uint32{0, 2, 3}, all(t, view(t, writes)))
	found, err := view(t, writes).Search(t.Context(), []search.Query{{Vectors: extra.Vectors, Dim: testDim}}, search.Options{K: 1})
	require.NoError(t, err)
	require.Equal(t, "extra", found[0].Hits[0].ID)
	zebras := func(c *Collection) (ids []string) {
		t.Helper()
		hits, err := view(t, c).SearchKeywords(t.Context(), collection.KeywordQuery{Text: "zebra", K: 3})
		require.NoError(t, err)
		for _, h := range hits {
			ids = append(ids, h.ID)
		}
		return ids
	}
	require.Equal(t, []string{"extra"}, zebras(writes))
	require.Empty(t, zebras(reads))
	// What the program changes itself is seen, by keywords too.
	_, _, err = changing.SetPayload(t.Context(), map[string][]byte{"b": []byte(`{"word":"zebra"}`)})
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, zebras(reads))

	_, err = reads.Update(t.Context(), []collection.DocumentInput{extra}, collection.UpdateOptions{Replace: true})
	require.ErrorIs(t, err, storage.ErrReadOnly)
	_, err = reads.Delete(t.Context(), collection.Selection{IDs: []string{"a"}})
	require.ErrorIs(t, err, storage.ErrReadOnly)
	_, err = reads.UpdateMetadata(t.Context(), collection.Selection{IDs: []string{"a"}}, nil)
	require.ErrorIs(t, err, storage.ErrReadOnly)
	_, err = reads.Retrain(t.Context())
	require.ErrorIs(t, err, storage.ErrReadOnly)

	var file bytes.Buffer
	_, err = writes.Backup(t.Context(), &file)
	require.NoError(t, err)
	require.NotZero(t, file.Len())
	require.NoError(t, reads.Verify(t.Context()))
	for what, err := range map[string]error{
		"declare": func() error { _, err := s.Create(t.Context(), "new", collection.Config{}); return err }(),
		"drop":    func() error { _, err := s.Remove(t.Context(), "writes"); return err }(),
		"most":    func() error { _, err := writes.SetMaxDocuments(t.Context(), new(uint64)); return err }(),
		"restore": s.Restore(t.Context(), "new", &file),
	} {
		require.ErrorIs(t, err, collection.ErrUnsupported, what)
	}
	require.ErrorIs(t, s.Restore(t.Context(), "reads", &file), collection.ErrExists)

	require.NoError(t, s.Close(t.Context()))
	again, err := own.Get("extra")
	require.NoError(t, err, "it is the program's")
	require.Equal(t, "extra", again.ID)

	still := openIndex(t, nil, a)
	_, err = FromIndexes(t.Context(), map[string]OpenIndex{"x": {Index: still, Write: true}}, nil)
	require.ErrorIs(t, err, storage.ErrReadOnly)
	_, err = FromIndexes(t.Context(), map[string]OpenIndex{"x": {}}, nil)
	require.ErrorIs(t, err, collection.ErrConfig)
	_, err = FromIndexes(t.Context(), map[string]OpenIndex{".x": {Index: still}}, nil)
	require.ErrorIs(t, err, collection.ErrName)
}
