package plaid_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode"
)

// A document without a text, or with one that has no token, is stored beside others. Conditions,
// keywords and Get find it; searches for vectors do not, and a text may come later.
func TestDocumentsWithoutTokens(t *testing.T) {
	ctx := t.Context()
	for name, o := range map[string]plaid.Options{
		"whole": {Model: model, Whole: true}, "passages": {Model: model, Passages: &encode.Splitting{Window: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			c := create(t, &o)
			ids, err := c.Add(ctx, plaid.Document{ID: "none", Payload: []byte(`{"note":"heron"}`)}, plaid.Document{ID: "blank", Text: " \t\n"})
			require.NoError(t, err, "the first documents have no tokens")
			require.Equal(t, []string{"none", "blank"}, ids)
			r, err := c.Search(ctx, plaid.Query{Text: "heron"})
			require.NoError(t, err)
			require.Empty(t, r)
			_, err = c.Add(ctx, plaid.Document{ID: "a", Text: "owls hunt at night"}, plaid.Document{Payload: []byte(`null`)}, plaid.Document{Title: "  ", Text: ""})
			require.NoError(t, err)
			n, err := c.Len(ctx)
			require.NoError(t, err)
			require.Equal(t, 5, n)
			for query, want := range map[string]plaid.Query{
				"keywords": {Text: "heron", Keywords: true}, "vectors": {Text: "owls"},
			} {
				r, err := c.Search(ctx, want)
				require.NoError(t, err)
				require.Len(t, r, 1, query)
				require.Equal(t, map[string]string{"keywords": "none", "vectors": "a"}[query], r[0].ID)
			}
			d, err := c.Get(ctx, "blank")
			require.NoError(t, err)
			require.Equal(t, " \t\n", d.Text)

			// Vectors come later.
			e, err := c.Encoder(ctx)
			require.NoError(t, err)
			later := make([]float32, e.Dim())
			later[0] = 1
			_, err = c.Update(ctx, plaid.Document{ID: "none", Vectors: later, KeepPayload: true})
			require.NoError(t, err)
			r, err = c.Search(ctx, plaid.Query{Vectors: later, Where: "note = 'heron'"})
			require.NoError(t, err)
			require.Len(t, r, 1)
			require.Equal(t, "none", r[0].ID)
			_, err = c.Update(ctx, plaid.Document{ID: "none", Vectors: later})
			require.NoError(t, err)
			d, err = c.Get(ctx, "none")
			require.NoError(t, err)
			require.Empty(t, d.Payload, "without KeepPayload it is gone")
		})
	}
}

// Without a model the dimension is that of Create.
func TestVectorsComeLater(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{Dim: 4})
	for i := range 3 {
		_, err := c.Add(ctx, plaid.Document{ID: fmt.Sprint(i), Title: "Owl", Payload: fmt.Appendf(nil, `{"n":%d}`, i), Vectors: []float32{}})
		require.NoError(t, err)
	}
	_, err := c.Update(ctx, plaid.Document{ID: "1", Vectors: []float32{1, 0, 0, 0}, KeepPayload: true})
	require.NoError(t, err)
	r, err := c.Search(ctx, plaid.Query{Vectors: []float32{1, 0, 0, 0}})
	require.NoError(t, err)
	require.Len(t, r, 1)
	d, err := c.Get(ctx, "1")
	require.NoError(t, err)
	require.Equal(t, plaid.Document{ID: "1", Title: "Owl", Payload: []byte(`{"n":1}`)}, d)
}
