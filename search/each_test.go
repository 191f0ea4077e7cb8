package search

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/searchtest"
	"github.com/plaid-ir/plaid/storage"
)

// only is a searcher that is no engine.
type only struct{ Searcher }

// Each request has its own options, and fails alone.
func TestEach(t *testing.T) {
	m := newMaker(5, 16, 20)
	ix := searchtest.Build(t, 16, m.Docs("d", 80, 8), &index.BuildOptions{Centroids: 32, Threads: 1})
	e := on(t, ix, 2)
	requests := []Request{
		{m.query(3), Options{K: 1}},
		{Query{}, Options{K: 2}},
		{m.query(4), Options{K: 7, Mode: Exhaustive}},
		{m.query(2), Options{K: -1}},
		{m.query(2), Options{Filter: Only("d3", "d5")}},
		{m.query(2), Options{Filter: Only("no such document")}},
		{m.query(2), Options{Mode: Candidates, Candidates: []string{"d9"}}},
	}
	wants := map[int]error{1: ErrQuery, 3: ErrOption, 5: ErrUnknownID}
	for _, s := range []Searcher{e, only{e}} {
		answers, err := Each(t.Context(), s, requests)
		require.NoError(t, err)
		require.Len(t, answers, len(requests))
		for i, a := range answers {
			if want := wants[i]; want != nil {
				require.ErrorIs(t, a.Err, want)
				require.Empty(t, a.Result.Hits)
				continue
			}
			require.NoError(t, a.Err)
			require.Equal(t, search(t, e, requests[i].Query, requests[i].Options).Hits, a.Result.Hits, i)
		}
	}
	none, err := Each(t.Context(), e, nil)
	require.NoError(t, err)
	require.Empty(t, none)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Each(ctx, e, requests)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, e.Close())
	_, err = Each(t.Context(), e, requests)
	require.ErrorIs(t, err, ErrClosed)
	_, err = Each(t.Context(), only{e}, requests)
	require.ErrorIs(t, err, ErrClosed)
}

func TestErrorsAreKinds(t *testing.T) {
	require.ErrorIs(t, ErrUnknownID, index.ErrNotFound)
	require.ErrorIs(t, ErrOption, index.ErrOption)
	require.ErrorIs(t, ErrClosed, storage.ErrClosed)
	require.NotErrorIs(t, index.ErrNotFound, ErrUnknownID)
}
