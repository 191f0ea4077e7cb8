package topk

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBestAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.OneOf(
			rapid.Float32Range(-2, 2),
			rapid.SampledFrom([]float32{0, 1, 1, 1, -3.5, 1e30, -1e30}),
		), 0, 300).Draw(t, "scores")
		s := make([]Scored, len(scores))
		for i, v := range scores {
			s[i] = Scored{uint32(i * 3), v}
		}
		shape := rapid.SampledFrom([]string{"drawn", "ascending", "descending", "pipes"}).Draw(t, "shape")
		switch shape {
		case "ascending":
			slices.SortFunc(s, func(a, b Scored) int { return Order(b, a) })
		case "descending":
			slices.SortFunc(s, Order)
		case "pipes":
			slices.SortFunc(s, Order)
			slices.Reverse(s[len(s)/2:])
		}
		n := rapid.IntRange(0, len(s)+2).Draw(t, "n")
		want := slices.Clone(s)
		slices.SortFunc(want, Order)
		want = want[:min(n, len(want))]
		got := slices.Clone(Best(s, n))
		slices.SortFunc(got, Order)
		require.Equal(t, want, got)
		for i := 1; i < len(got); i++ {
			require.True(t, got[i-1].Before(got[i]))
			require.False(t, got[i].Before(got[i-1]))
		}
	})
}

func TestBestOfMany(t *testing.T) {
	const n = 1 << 16
	for name, score := range map[string]func(i int) float32{
		"equal":   func(int) float32 { return 1 },
		"rising":  func(i int) float32 { return float32(i) },
		"falling": func(i int) float32 { return -float32(i) },
		"saw":     func(i int) float32 { return float32(i % 257) },
		"pipes":   func(i int) float32 { return float32(min(i, n-i)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := make([]Scored, n)
			for i := range s {
				s[i] = Scored{uint32(i), score(i)}
			}
			want := slices.Clone(s)
			slices.SortFunc(want, Order)
			for _, k := range []int{1, 100, n / 2, n - 1, n} {
				got := slices.Clone(Best(slices.Clone(s), k))
				slices.SortFunc(got, Order)
				require.True(t, slices.Equal(want[:k], got), k)
			}
		})
	}
}
