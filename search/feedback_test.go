package search

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search/searchtest"
)

// Documents that are said to be good draw those that are like them, and those that are
// said to be bad push theirs away.
func TestFeedback(t *testing.T) {
	m := newMaker(11, 16, 12)
	docs := m.Docs("d", 300, 12)
	ix := searchtest.Build(t, 16, docs, nil)
	e := on(t, ix, 2)
	q := m.query(6)
	place := func(id string, o Options) int {
		o.K = 300
		for i, h := range search(t, e, q, o).Hits {
			if h.ID == id {
				return i
			}
		}
		return 300
	}
	plain := search(t, e, q, Options{K: 200})
	low := plain.Hits[150].ID
	require.Less(t, place(low, Options{Feedback: &Feedback{Like: []string{low}, Weight: 2}}), 20)
	high := plain.Hits[0].ID
	require.Greater(t, place(high, Options{Feedback: &Feedback{Unlike: []string{high}, Weight: 5}}), 20)

	// With its own first document a query stays near what it was, and weights and masks hold.
	q.Mask, q.Weights = []bool{true, true, false, true, true, true}, []float32{1, 1, 100, 1, 1, 1}
	before := q
	res := search(t, e, q, Options{K: 10, Feedback: &Feedback{Docs: 3}, Matches: true})
	require.Equal(t, before, q, "the query is the caller's")
	require.Len(t, res.Hits, 10)
	require.Equal(t, 1, res.Stats.Queries)
	for _, match := range res.Hits[0].Matches {
		require.NotEqual(t, 2, match.QueryToken)
	}
	require.Greater(t, len(res.Hits[0].Matches), 5, "tokens were added")
	batch, err := e.SearchBatch(t.Context(), []Query{q, m.query(2)}, Options{K: 10, Feedback: &Feedback{Docs: 3}})
	require.NoError(t, err)
	require.Equal(t, ids(res.Hits), ids(batch[0].Hits))

	// Of several files what is rare is counted over all.
	several := multi(t, sharded(t, ix, docs, 3, true), 2)
	got, err := several.Search(t.Context(), q, Options{K: 10, Mode: Exhaustive, Feedback: &Feedback{Docs: 3}})
	require.NoError(t, err)
	require.Equal(t, named(search(t, e, q, Options{K: 10, Mode: Exhaustive, Feedback: &Feedback{Docs: 3}}).Hits), named(got.Hits))

	for _, bad := range []*Feedback{{}, {Docs: -1}, {Docs: 101}, {Docs: 1, Terms: 1000}, {Docs: 1, Weight: -1}} {
		_, err := e.Search(t.Context(), q, Options{Feedback: bad})
		require.ErrorIs(t, err, ErrOption)
	}
	_, err = e.Search(t.Context(), q, Options{Feedback: &Feedback{Like: []string{"nobody"}}})
	require.ErrorIs(t, err, ErrUnknownID)
	_, err = e.Explain(t.Context(), q, "d1", Options{Feedback: &Feedback{Docs: 1}})
	require.ErrorIs(t, err, ErrOption)
}
