package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

func realDocs(t *testing.T) (vectors.Source, []vectors.Document) {
	t.Helper()
	const dim = 32
	rng := rand.New(rand.NewPCG(1, 1))
	docs := make([]vectors.Document, 20)
	for i := range docs {
		v := make([]float32, (1+rng.IntN(9))*dim)
		for j := range v {
			v[j] = float32(rng.NormFloat64())
		}
		docs[i] = vectors.Document{ID: string(rune('a' + i)), Tokens: v}
	}
	src, err := vectors.FromDocuments(dim, docs)
	require.NoError(t, err)
	return src, docs
}

func TestNoisy(t *testing.T) {
	src, docs := realDocs(t)
	for _, noise := range []float64{0, 0.5} {
		g, err := newNoisy(src, 3000, noise, 7)
		require.NoError(t, err)
		tokens, cosine := 0, 0.0
		var first []float32
		i := 0
		for d, err := range g.Docs(t.Context(), 0, g.Len()) {
			require.NoError(t, err)
			want := docs[g.origins[i]].Tokens
			require.Len(t, d.Tokens, len(want))
			require.Equal(t, g.Rows(i), len(want)/32)
			for j := 0; j < len(want); j += 32 {
				require.InDelta(t, 1, norm(d.Tokens[j:j+32]), 1e-5)
				dot := 0.0
				for k := range 32 {
					dot += float64(want[j+k]) * float64(d.Tokens[j+k])
				}
				cosine += dot / norm(want[j:j+32])
			}
			tokens += g.Rows(i)
			if i == 5 {
				first = slices.Clone(d.Tokens)
			}
			i++
		}
		require.Equal(t, g.Len(), i)
		require.GreaterOrEqual(t, tokens, 3000)
		require.Less(t, tokens, 3010)
		require.InDelta(t, 1/math.Sqrt(1+noise*noise), cosine/float64(tokens), 0.01)
		for d, err := range g.Docs(t.Context(), 5, 6) { // asked for again, alone
			require.NoError(t, err)
			require.Equal(t, first, d.Tokens)
		}
	}
}

func TestNoisyFaults(t *testing.T) {
	src, _ := realDocs(t)
	g, err := newNoisy(src, 100, 0.1, 1)
	require.NoError(t, err)
	for _, r := range [][2]int{{-1, 2}, {3, 2}, {0, g.Len() + 1}} {
		for _, err := range g.Docs(t.Context(), r[0], r[1]) {
			require.ErrorIs(t, err, vectors.ErrShape)
		}
	}
	empty, err := vectors.FromDocuments(4, []vectors.Document{{ID: "a"}})
	require.NoError(t, err)
	_, err = newNoisy(empty, 10, 0.1, 1)
	require.ErrorIs(t, err, vectors.ErrShape)
}
