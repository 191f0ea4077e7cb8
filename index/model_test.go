package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/storage"
)

// The model of an index is kept over changes and compaction, and additions are
// held against it.
func TestModelOfAnIndex(t *testing.T) {
	path := newPath(t)
	docs := corpus(20, 4, 8, 1)
	model := &storage.Model{Name: "nano", Fingerprint: "abc"}
	build(t, path, 8, docs[:10], &BuildOptions{Model: model})
	ix := writing(t, path)
	src := fromDocs(t, 8, docs[10:15])
	other := &storage.Model{Name: "nano", Fingerprint: "abd"}
	_, err := ix.Add(t.Context(), src, &AddOptions{Model: other})
	require.ErrorIs(t, err, storage.ErrModel)
	require.ErrorContains(t, err, path)
	_, err = ix.Add(t.Context(), src, nil) // nobody says
	require.NoError(t, err)
	_, err = ix.Add(t.Context(), fromDocs(t, 8, docs[15:]), &AddOptions{Model: model})
	require.NoError(t, err)
	require.NoError(t, ix.Compact(t.Context(), nil))
	in, err := ix.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, model, in.Header.Model)
	require.EqualValues(t, 20, in.Docs)

	_, err = Build(t.Context(), newPath(t), fromDocs(t, 8, docs), &BuildOptions{Model: &storage.Model{}})
	require.ErrorIs(t, err, ErrOption)
}
