package search

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/partly"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// Searches of a file that is being fetched give the bits that those of the whole file give, and read
// nothing that is not there.
func TestPartialSearches(t *testing.T) {
	m := newMaker(9, 64, 60)
	docs := m.Docs("d", effort.Cases(24000, 40000), 45)
	for i := range docs {
		docs[i].Payload = fmt.Appendf(nil, `{"n":%d,"kind":"k%d","text":"%0300d"}`, i, i%7, i)
	}
	path := filepath.Join(t.TempDir(), "whole.plaid")
	_, err := index.Build(t.Context(), path, searchtest.Source(t, 64, docs), &index.BuildOptions{Nbits: 4, Centroids: 1024, Iterations: 1})
	require.NoError(t, err)
	whole, err := index.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer whole.Close()
	expr, err := condition.Parse("kind = ? AND n > ?")
	require.NoError(t, err)
	where, err := expr.Bind("k3", 500)
	require.NoError(t, err)
	e := on(t, whole, 2)
	for name, o := range map[string]Options{
		"plain":      {K: 10},
		"payloads":   {K: 100, Payload: true},
		"matches":    {K: 10, Matches: true, Payload: true},
		"groups":     {K: 10, Group: GroupMaxSim, Passages: 2},
		"filter":     {K: 10, Filter: &Filter{Where: where}},
		"candidates": {K: 5, Mode: Candidates, Candidates: []string{"d7", "d401", "d9999"}},
		"exhaustive": {K: 10, Mode: Exhaustive},
	} {
		t.Run(name, func(t *testing.T) {
			s := partly.New(t, path, 1)
			ix, err := index.Open(t.Context(), s.Path, &index.Options{Source: s})
			require.NoError(t, err)
			defer ix.Close()
			s.Fence(t)
			part := on(t, ix, 2)
			for range 5 {
				q := m.query(16)
				want, got := search(t, e, q, o), search(t, part, q, o)
				require.Equal(t, want.Hits, got.Hits)
			}
			bytes, of, _ := s.Fetched()
			t.Logf("%d of %d bytes", bytes, of)
			require.Less(t, bytes, of)
		})
	}
}
