package search

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/storage"
)

// A query that says what made it is held against the model of the index.
func TestModelOfAQuery(t *testing.T) {
	m := newMaker(1, 16, 4)
	made := &storage.Model{Name: "nano", Fingerprint: "abc"}
	for _, ix := range []*index.Index{
		searchtest.Build(t, 16, m.Docs("d", 30, 5), &index.BuildOptions{Model: made}),
		searchtest.Build(t, 16, m.Docs("d", 30, 5), nil),
	} {
		e, err := New(t.Context(), ix, nil)
		require.NoError(t, err)
		defer e.Close()
		q := m.query(3)
		for _, c := range []struct {
			model *storage.Model
			ok    bool
		}{{nil, true}, {made, true}, {&storage.Model{Name: "other", Fingerprint: "xyz"}, false}} {
			q.Model = c.model
			_, err := e.Search(t.Context(), q, Options{})
			d, derr := e.Describe(t.Context())
			require.NoError(t, derr)
			if c.ok || d.Model == nil {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, storage.ErrModel)
			require.ErrorIs(t, err, ErrQuery)
		}
	}
	q := Query{Vectors: []float32{1}, Dim: 1, Model: made}
	text, err := json.Marshal(q)
	require.NoError(t, err)
	var back Query
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, q, back)
}
