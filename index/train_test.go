package index

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

// heavyTail makes documents of these numbers of tokens.
func heavyTail(dim int, rows ...int) []vectors.Document {
	rng := rand.New(rand.NewPCG(1, 2))
	docs := make([]vectors.Document, len(rows))
	for i, n := range rows {
		docs[i] = vectors.Document{ID: strconv.Itoa(i), Tokens: clustered(rng, n, dim)}
	}
	return docs
}

// Documents of very different lengths: the sample has about as many tokens as it
// may have, whatever the seed.
func TestSampleRegardsTokens(t *testing.T) {
	const dim = 8
	many := slices.Repeat([]int{20}, 196)
	for name, rows := range map[string][]int{
		"three":     {5, 30_000, 5},
		"few long":  append(many, 8000, 8000, 8000, 8000),
		"one long":  append(many, 50_000),
		"with gaps": {0, 3, 0, 20_000, 0, 0, 1, 0},
	} {
		src := fromDocs(t, dim, heavyTail(dim, rows...))
		for seed := range uint64(4) {
			if effort.Brief() && seed > 0 {
				break
			}
			o := &BuildOptions{Centroids: 16, Seed: seed, Threads: 2}
			r := build(t, newPath(t), dim, heavyTail(dim, rows...), o)
			require.InDelta(t, 16*maxPointsPerCentroid, r.Train.Vectors, 16*maxPointsPerCentroid/2, "%s, seed %d", name, seed)
			require.Less(t, r.RMSE, 0.9, "%s, seed %d", name, seed)
			require.Equal(t, 16, r.Train.K)
		}
		total := int64(0)
		for _, n := range rows {
			total += int64(n)
		}
		a := chooseSample(src, total, 4096, 4096, BuildOptions{Seed: 3})
		require.Equal(t, a, chooseSample(src, total, 4096, 4096, BuildOptions{Seed: 3}))
		require.NotEqual(t, a, chooseSample(src, total, 4096, 4096, BuildOptions{Seed: 4}))
	}
}

// Each span is read once, in order, with its tokens.
func TestReadSpans(t *testing.T) {
	const dim = 2
	docs := heavyTail(dim, 3, 0, 5, 2, 7, 1)
	spans := []span{{0, 1, 3}, {2, 0, 2}, {2, 3, 5}, {3, 0, 2}, {5, 0, 1}}
	var got []float32
	for tokens, err := range readSpans(context.Background(), fromDocs(t, dim, docs), spans) {
		require.NoError(t, err)
		got = append(got, tokens...)
	}
	var want []float32
	for _, s := range spans {
		want = append(want, docs[s.doc].Tokens[s.lo*dim:s.hi*dim]...)
	}
	require.Equal(t, want, got)
}

// A number of documents that is asked for is a number of documents.
func TestSampleOfDocuments(t *testing.T) {
	docs := heavyTail(4, append(slices.Repeat([]int{2}, 30), 500)...)
	for seed := range uint64(10) {
		r := build(t, newPath(t), 4, docs, &BuildOptions{Centroids: 4, SampleDocs: 5, Seed: seed})
		require.Equal(t, 5, r.SampleDocs)
	}
}
