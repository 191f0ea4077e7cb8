package store

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// The first documents have no vectors: they are found by conditions and read, and the first vectors
// decide the dimension. Numbers stay, also where documents between have gone.
func TestFirstDocumentsWithoutVectors(t *testing.T) {
	ctx := t.Context()
	for name, growth := range map[string]collection.Growth{
		"flat": {}, "trained at once": {Flat: -1}, "final at once": {Flat: -1, Until: -1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, &Options{Growth: growth})
			c := declare(t, s, "docs", collection.Config{})
			var docs []collection.DocumentInput
			for i := range 4 {
				docs = append(docs, collection.DocumentInput{ID: fmt.Sprint("d", i), Metadata: fmt.Appendf(nil, `{"n":%d}`, i)})
			}
			r, err := c.Update(ctx, docs, collection.UpdateOptions{})
			require.NoError(t, err)
			require.Equal(t, 4, r.Empty)
			require.Equal(t, []uint64{0, 1, 2, 3}, r.Numbers)
			_, err = c.Delete(ctx, collection.Selection{IDs: []string{"d1"}})
			require.NoError(t, err)

			st, err := c.Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, []uint64{3, 0, 0}, []uint64{st.Documents, st.Tokens, uint64(st.Dim)})
			v, err := c.Snapshot(ctx)
			require.NoError(t, err)
			require.Zero(t, v.Dim())
			for _, dim := range []int{1, testDim, 2 * testDim} {
				q := search.Query{Vectors: make([]float32, dim), Dim: dim, Weights: []float32{2}}
				q.Vectors[0] = 1
				require.NoError(t, v.Check(&q))
				found, err := v.Search(ctx, []search.Query{q}, search.Options{K: 3})
				require.NoError(t, err, "of any dimension")
				require.Empty(t, found[0].Hits)
			}
			require.NoError(t, v.Close())

			late := randomDoc("d2", 1)
			late.Metadata, late.KeepMetadata = nil, true
			r, err = c.Update(ctx, []collection.DocumentInput{{ID: "e"}, late}, collection.UpdateOptions{Replace: true})
			require.NoError(t, err)
			require.Equal(t, []uint64{4, 5}, r.Numbers, "numbers of others stay")
			require.Equal(t, []int{1, 1}, []int{r.Empty, r.Replaced})
			require.NoError(t, c.WaitForGrowth(ctx))
			v = view(t, c)
			require.Equal(t, testDim, v.Dim())
			found, err := v.Search(ctx, []search.Query{{Vectors: late.Vectors, Dim: testDim}}, search.Options{K: 3})
			require.NoError(t, err)
			require.Len(t, found[0].Hits, 1)
			require.Equal(t, "d2", found[0].Hits[0].ID)
			m, err := v.MetadataOf(&found[0].Hits[0])
			require.NoError(t, err)
			require.Equal(t, `{"n":2}`, string(m))
			var names []string
			for d, err := range v.Documents(ctx, collection.Selection{}, collection.ReadOptions{}) {
				require.NoError(t, err)
				names = append(names, fmt.Sprint(d.Number, d.ID))
			}
			require.Equal(t, []string{"0d0", "3d3", "4e", "5d2"}, names)

			_, err = c.Update(ctx, []collection.DocumentInput{{ID: "x", Dim: 3, Vectors: []float32{1, 0, 0}}}, collection.UpdateOptions{})
			require.ErrorIs(t, err, index.ErrDimension, "it is decided")
			_, err = c.Update(ctx, []collection.DocumentInput{{ID: "x"}}, collection.UpdateOptions{})
			require.NoError(t, err)
		})
	}
}

// A document keeps the metadata of the one that it replaces, or has its own; requests that share a
// transaction do not see each other's.
func TestKeepMetadata(t *testing.T) {
	ctx := context.Background()
	c := declare(t, openStore(t, t.TempDir(), nil), "docs", collection.Config{})
	put := func(id, metadata string, keep bool) {
		d := randomDoc(id, 1)
		d.Metadata, d.KeepMetadata = json.RawMessage(metadata), keep
		_, err := c.Update(ctx, []collection.DocumentInput{d}, collection.UpdateOptions{Replace: true})
		require.NoError(t, err)
	}
	stored := func(id string) string {
		v := view(t, c)
		for d, err := range v.Documents(ctx, collection.Selection{IDs: []string{id}}, collection.ReadOptions{Metadata: true}) {
			require.NoError(t, err)
			return string(d.Metadata)
		}
		return "gone"
	}
	put("a", `{"n":1}`, true)
	put("a", `{"_id":"a"}`, true)
	require.Equal(t, `{"n":1}`, stored("a"))
	put("a", `{"m":2}`, true)
	require.Equal(t, `{"m":2}`, stored("a"))
	put("a", ``, false)
	require.Empty(t, stored("a"))
	// Of passages it is what these have in common.
	_, err := c.Update(ctx, []collection.DocumentInput{
		{ID: "b#0", Metadata: []byte(`{"_passage":{"of":"b","n":0,"start":0,"end":3},"n":5,"text":"owl"}`)},
		{ID: "b#1", Metadata: []byte(`{"_passage":{"of":"b","n":1,"start":4,"end":7},"n":5,"text":"elk"}`)},
	}, collection.UpdateOptions{Replace: true})
	require.NoError(t, err)
	put("b", ``, true)
	require.Equal(t, `{"n":5}`, stored("b"))
}
