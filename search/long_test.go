package search

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
)

// Documents longer than a job are scored in parts by several threads, with the
// same scores.
func TestLongDocumentsInParts(t *testing.T) {
	m := newMaker(7, 16, 60)
	docs := m.Docs("d", 200, 12)
	for at, tokens := range map[int]int{20: 2*exactJob - 1, 40: 2 * exactJob, 60: 2*exactJob + 1, 199: 5*exactJob + 17} {
		docs[at].Tokens = m.Tokens(tokens)
	}
	ix := searchtest.Build(t, 16, docs, &index.BuildOptions{Centroids: 128})
	one := on(t, ix, 1)
	for _, tokens := range []int{1, 5, 40} {
		q := m.query(tokens)
		q.Weights = make([]float32, tokens)
		for i := range q.Weights {
			q.Weights[i] = float32(i%3) + 0.5
		}
		for _, o := range []Options{{K: 20, Mode: Exhaustive}, {K: 20}, {K: 200, Mode: Exhaustive}} {
			want := search(t, one, q, o)
			require.Subset(t, ids(want.Hits), []string{"d20", "d40", "d60", "d199"}, "long documents have good matches")
			for _, threads := range []int{2, 3, 8} {
				got := search(t, on(t, ix, threads), q, o)
				require.Equal(t, want.Hits, got.Hits)
				require.Equal(t, want.Stats.ExactTokens, got.Stats.ExactTokens)
			}
		}
	}

	snap := searchtest.Snapshot(t, ix)
	r := testRun(snap, 2)
	all := func() (parts int) {
		live, _ := snap.LiveSet()
		tokens, parts := r.split(appendSet(nil, live), exactJob, true)
		require.EqualValues(t, snap.State().LiveTokens, tokens)
		var sum, longest int
		for _, j := range r.jobs {
			sum += j.tokens
			longest = max(longest, j.tokens)
		}
		require.EqualValues(t, tokens, sum, "each token is in one job")
		if parts > 0 {
			require.Less(t, longest, 3*exactJob)
		}
		return parts
	}
	require.Equal(t, 2+3+6, all())
	r.threads = 1
	require.Zero(t, all(), "one thread cuts nothing")
}

// The more tokens a query has, the fewer of documents are in a job, so that a search
// hears soon that it is to end.
func TestJobsOfLongQueries(t *testing.T) {
	const dim, longest = 16, 30
	m := newMaker(8, dim, 60)
	snap := searchtest.Snapshot(t, searchtest.Build(t, dim, m.Docs("d", 3000, longest), &index.BuildOptions{Centroids: 64}))
	live, _ := snap.LiveSet()
	for _, queryTokens := range []int{1, 128, 40_000} {
		r := testRun(snap, 2)
		require.NoError(t, r.query.Reset(m.Tokens(queryTokens), nil))
		_, parts := r.split(appendSet(nil, live), approxJob, false)
		require.Zero(t, parts)
		for _, j := range r.jobs {
			require.Less(t, (j.tokens-2*longest)*queryTokens, jobPairs)
		}
		require.Equal(t, queryTokens > 128, len(r.jobs) > 2*snap.Chunks(), "%d jobs of %d chunks", len(r.jobs), snap.Chunks())
	}
}
