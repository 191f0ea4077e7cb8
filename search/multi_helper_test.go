package search

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// sharded builds documents as n indexes with the codec of another one: by the order of
// documents, or by the hashes of their ids.
func sharded(t testing.TB, of *index.Index, docs []vectors.Document, n int, byHash bool) *index.Set {
	t.Helper()
	parts := make([][]vectors.Document, n)
	for i, d := range docs {
		p := i * n / len(docs)
		if byHash {
			p = index.Place(d.ID, n)
		}
		parts[p] = append(parts[p], d)
	}
	snap := searchtest.Snapshot(t, of)
	var paths []string
	for i, part := range parts {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("part%d.plaid", i))
		_, err := index.Build(context.Background(), path, searchtest.Source(t, snap.Dim(), part), &index.BuildOptions{Codec: snap.Quantizer()})
		require.NoError(t, err)
		paths = append(paths, path)
	}
	return openSet(t, paths)
}

func openSet(t testing.TB, paths []string) *index.Set {
	t.Helper()
	set, err := index.OpenSet(context.Background(), paths, &index.Options{Write: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	return set
}

func multi(t testing.TB, set *index.Set, threads int) *Multi {
	t.Helper()
	m, err := NewMulti(context.Background(), set, &MultiOptions{Threads: threads, Scheduler: NewScheduler(threads, 0)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// named leaves what two searchers of the same documents have in common: ids and the
// bits of scores.
func named(hits []Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = fmt.Sprintf("%s %08x %s", h.ID, math.Float32bits(h.Score), h.Payload)
	}
	return out
}

// inOrder makes sure that hits are by score, part and ordinal.
func inOrder(t testing.TB, hits []Hit) {
	t.Helper()
	require.True(t, slices.IsSortedFunc(hits, func(a, b Hit) int {
		switch {
		case a.Score != b.Score:
			return map[bool]int{true: -1, false: 1}[a.Score > b.Score]
		case a.Part != b.Part:
			return a.Part - b.Part
		}
		return int(a.Ordinal) - int(b.Ordinal)
	}), "%v", hits)
}

func scoresOf(hits []Hit) []float32 {
	out := make([]float32, len(hits))
	for i, h := range hits {
		out[i] = h.Score
	}
	return out
}

// sumParts makes sure that the figures of parts add up.
func sumParts(t testing.TB, n int, r *Result) {
	t.Helper()
	if n == 1 {
		require.Empty(t, r.Stats.Parts)
		return
	}
	require.Len(t, r.Stats.Parts, n)
	var sum PartStats
	for i, p := range r.Stats.Parts {
		require.Equal(t, i, p.Part)
		sum.Allowed += p.Allowed
		sum.Hits += p.Hits
		sum.ExactDocs += p.ExactDocs
	}
	require.Equal(t, []int64{r.Stats.Allowed, int64(len(r.Hits)), r.Stats.ExactDocs}, []int64{sum.Allowed, sum.Hits, sum.ExactDocs})
}

func overlap(a, b []Hit) int {
	n := 0
	for _, h := range a {
		if slices.Contains(ids(b), h.ID) {
			n++
		}
	}
	return n
}

func sorted(set map[string]bool) []string {
	out := []string{}
	for id := range set {
		out = append(out, id)
	}
	sort.Strings(out)
	return out
}

func nonEmpty(docs []vectors.Document, id string) bool {
	return slices.ContainsFunc(docs, func(d vectors.Document) bool { return d.ID == id && len(d.Tokens) > 0 })
}

func m2query() Query {
	v := make([]float32, 16)
	for i := range v {
		v[i] = rand.Float32() - 0.5
	}
	return Query{Vectors: v}
}
