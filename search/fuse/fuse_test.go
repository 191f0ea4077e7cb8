package fuse

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFuse(t *testing.T) {
	vectors := []ScoredDocument{{1, 9}, {2, 8}, {3, 5}}
	words := []ScoredDocument{{3, 2}, {4, 2}}
	tests := []struct {
		name   string
		method Method
		alpha  float64
		k      int
		want   []ScoredDocument
	}{
		{"ranks", ReciprocalRank, .75, 10, []ScoredDocument{{3, .75/63 + .25/61}, {1, .75 / 61}, {2, .75 / 62}, {4, .25 / 62}}},
		{"scores", RelativeScore, .75, 10, []ScoredDocument{{1, .75}, {2, .75 * .75}, {3, .25}, {4, .25}}},
		{"cut", RelativeScore, .75, 2, []ScoredDocument{{1, .75}, {2, .75 * .75}}},
		{"none", RelativeScore, .75, 0, []ScoredDocument{}},
		{"only the first", RelativeScore, 1, 10, []ScoredDocument{{1, 1}, {2, .75}, {3, 0}}},
		{"only the second", ReciprocalRank, 0, 10, []ScoredDocument{{3, 1. / 61}, {4, 1. / 62}}},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			got, err := Fuse(x.method, x.k, x.alpha, vectors, words)
			require.NoError(t, err)
			require.Equal(t, x.want, got)
		})
	}
}

func TestBadInput(t *testing.T) {
	for _, alpha := range []float64{-.1, 1.1, math.NaN(), math.Inf(1)} {
		_, err := Fuse(RelativeScore, 1, alpha, nil, nil)
		require.ErrorIs(t, err, ErrWeight)
	}
	_, err := Fuse(Method(7), 1, 1, nil, nil)
	require.ErrorIs(t, err, ErrMethod)
	for _, bad := range [][]ScoredDocument{{{1, math.NaN()}}, {{1, 2}, {1, 1}}} {
		_, err = Fuse(RelativeScore, 1, 1, bad, nil)
		require.ErrorIs(t, err, ErrRanking)
	}
	_, err = ParseMethod("best")
	require.ErrorIs(t, err, ErrMethod)
	_, err = json.Marshal(Method(7))
	require.ErrorIs(t, err, ErrMethod)
}

func TestMethodsAsText(t *testing.T) {
	text, err := json.Marshal([]Method{RelativeScore, ReciprocalRank})
	require.NoError(t, err)
	require.Equal(t, `["relative_score","rrf"]`, string(text))
	var back []Method
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, []Method{RelativeScore, ReciprocalRank}, back)
}

// A fused ranking is in order, has no document twice and all of those with weight;
// and the order of hits of equal ordinal set does not depend on a scale of scores.
func TestFuseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) []ScoredDocument {
			docs := rapid.SliceOfNDistinct(rapid.Uint32Range(0, 20), 0, 12, rapid.ID).Draw(t, label)
			hits := make([]ScoredDocument, len(docs))
			score := 1e6
			for i, d := range docs {
				score -= float64(rapid.IntRange(0, 3).Draw(t, "less"))
				hits[i] = ScoredDocument{d, score}
			}
			return hits
		}
		a, b := draw("a"), draw("b")
		m := rapid.SampledFrom([]Method{RelativeScore, ReciprocalRank}).Draw(t, "method")
		alpha := rapid.Float64Range(.01, .99).Draw(t, "alpha")
		got, err := Fuse(m, 100, alpha, a, b)
		require.NoError(t, err)
		all := map[uint32]bool{}
		for _, h := range append(append([]ScoredDocument{}, a...), b...) {
			all[h.Ordinal] = true
		}
		require.Len(t, got, len(all))
		for i, h := range got {
			require.True(t, all[h.Ordinal])
			delete(all, h.Ordinal)
			require.True(t, h.Score >= 0 && h.Score <= 1)
			if i > 0 {
				before := got[i-1]
				require.True(t, before.Score > h.Score || before.Score == h.Score && before.Ordinal < h.Ordinal)
			}
		}
		for i := range a { // powers of two: exact
			a[i].Score *= 4
		}
		again, err := Fuse(m, 100, alpha, a, b)
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
