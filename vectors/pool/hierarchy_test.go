package pool

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// hierarchyOf clusters by definition: squares of 1 less the cosine, Lance and Williams' update.
func hierarchyOf(x []float32, dim, keep int) [][]int {
	n := len(x) / dim
	far := make([][]float64, n)
	pools := make([][]int, n)
	for i := range n {
		far[i], pools[i] = make([]float64, n), []int{i}
		for j := range n {
			var cosine float64
			for k := range dim {
				cosine += float64(x[i*dim+k]) * float64(x[j*dim+k])
			}
			far[i][j] = (1 - cosine) * (1 - cosine)
		}
	}
	for left := n; left > keep; left-- {
		a, b, least := 0, 0, math.Inf(1)
		for i := range n {
			for j := i + 1; j < n; j++ {
				if pools[i] != nil && pools[j] != nil && far[i][j] < least {
					a, b, least = i, j, far[i][j]
				}
			}
		}
		na, nb := float64(len(pools[a])), float64(len(pools[b]))
		for c := range n {
			if pools[c] == nil || c == a || c == b {
				continue
			}
			nc := float64(len(pools[c]))
			d := ((na+nc)*far[a][c] + (nb+nc)*far[b][c] - nc*least) / (na + nb + nc)
			far[a][c], far[c][a] = d, d
		}
		pools[a], pools[b] = append(pools[a], pools[b]...), nil
	}
	return slices.DeleteFunc(pools, func(p []int) bool { return p == nil })
}

func TestHierarchyIsWardClustering(t *testing.T) {
	var p Pooler
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.IntRange(3, 12).Draw(t, "dim")
		rows := rapid.IntRange(1, 24).Draw(t, "rows")
		h := &Hierarchy{Factor: rapid.Float64Range(1, 5).Draw(t, "factor"), Protected: rapid.IntRange(0, 3).Draw(t, "protected")}
		x := clustered(rows, dim, 1+rows/3, 0.6, rapid.Uint64().Draw(t, "seed"))
		before := slices.Clone(x)
		got := p.Hierarchy([]float32{7}, x, dim, h)[1:]
		require.Equal(t, before, x, "input was changed")
		first := min(h.Protected, rows) * dim
		require.Equal(t, x[:first], got[:first], "the first ones stay")
		var want []float32
		if rest := x[first:]; len(rest) > 0 {
			for _, pool := range hierarchyOf(rest, dim, max(int(float64(len(rest)/dim)/h.Factor), 1)) {
				mean := make([]float32, dim)
				for _, r := range pool {
					for j, v := range rest[r*dim : (r+1)*dim] {
						mean[j] += v / float32(len(pool))
					}
				}
				want = append(want, mean...)
			}
		}
		require.Len(t, got[first:], len(want))
		if len(want) > 0 {
			require.InDeltaSlice(t, want, got[first:], 1e-5)
		}
		h.Unit = true
		for row := range slices.Chunk(p.Hierarchy(nil, x, dim, h), dim) {
			var square float64
			for _, v := range row {
				square += float64(v) * float64(v)
			}
			require.InDelta(t, 1, square, 1e-6)
		}
	})
}

// Pairs that are equally far apart become pools together, as in scipy: there may be fewer than asked for.
func TestHierarchyOfEqualDistances(t *testing.T) {
	var p Pooler
	x := []float32{1, 0, 1, 0, 0, 1, 0, 1}
	require.Equal(t, []float32{1, 0, 0, 1}, p.Hierarchy(nil, x, 2, &Hierarchy{Factor: 4.0 / 3}))
	require.Equal(t, x, p.Hierarchy(nil, x, 2, &Hierarchy{Factor: 1}))
	require.Equal(t, x, p.Hierarchy(nil, x, 2, &Hierarchy{Factor: 9, Protected: 9}))
	require.Equal(t, []float32{0.5, 0.5}, p.Hierarchy(nil, x, 2, &Hierarchy{Factor: 1000}))
	require.Empty(t, p.Hierarchy(nil, nil, 2, &Hierarchy{Factor: 2}))
	nan := float32(math.NaN())
	pooled := p.Hierarchy(nil, []float32{nan, 1, nan}, 1, &Hierarchy{Factor: 2})
	require.Len(t, pooled, 1, "vectors that were refused elsewhere do no harm")
}
