package pool

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// wardPools clusters by definition: of all pairs of clusters that touch, it joins the two whose
// union adds least to the sum of squared distances from the means, until keep are left.
func wardPools(x []float32, dim, keep int, touch func(a, b []int) bool) [][]int {
	var pools [][]int
	for i := range len(x) / dim {
		pools = append(pools, []int{i})
	}
	spread := func(rows []int) (sum float64) {
		for j := range dim {
			var s, ss float64
			for _, r := range rows {
				v := float64(x[r*dim+j])
				s, ss = s+v, ss+v*v
			}
			sum += ss - s*s/float64(len(rows))
		}
		return sum
	}
	for len(pools) > keep {
		a, b, least := -1, -1, math.Inf(1)
		for i := range pools {
			for j := i + 1; j < len(pools); j++ {
				if !touch(pools[i], pools[j]) {
					continue
				}
				joint := slices.Concat(pools[i], pools[j])
				if d := spread(joint) - spread(pools[i]) - spread(pools[j]); d < least {
					a, b, least = i, j, d
				}
			}
		}
		pools[a] = append(pools[a], pools[b]...)
		pools = slices.Delete(pools, b, b+1)
	}
	return pools
}

func TestPoolIsWardClustering(t *testing.T) {
	var p Pooler
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.IntRange(2, 12).Draw(t, "dim")
		rows := rapid.IntRange(1, 24).Draw(t, "rows")
		n := rapid.IntRange(2, 5).Draw(t, "n")
		x := clustered(rows, dim, 1+rows/3, 0.6, rapid.Uint64().Draw(t, "seed"))
		before := slices.Clone(x)
		got := p.Pool([]float32{7}, x, dim, n)[1:]
		require.Equal(t, before, x, "input was changed")
		require.Len(t, got, PooledRows(rows, n)*dim)
		want := wardPools(x, dim, PooledRows(rows, n), func([]int, []int) bool { return true })
		for i, pool := range want {
			mean := make([]float32, dim)
			for _, r := range pool {
				for j, v := range x[r*dim : (r+1)*dim] {
					mean[j] += v
				}
			}
			normalizeRow(mean)
			require.InDeltaSlice(t, mean, got[i*dim:(i+1)*dim], 1e-5, "pool %d of %v", i, want)
		}
	})
}

func TestPoolEdges(t *testing.T) {
	var p Pooler
	x := clustered(9, 4, 3, 0.5, 1)
	require.Equal(t, x, p.Pool(nil, x, 4, 1))
	require.Equal(t, x, p.Pool(nil, x, 4, 0))
	require.Empty(t, p.Pool(nil, nil, 4, 3))
	require.Len(t, p.Pool(nil, x, 4, 100), 4)
	// Opposite vectors and zeros have no direction together.
	require.Equal(t, []float32{0, 0}, p.Pool(nil, []float32{1, 0, -1, 0}, 2, 2))
	require.Equal(t, []float32{0, 0}, p.Pool(nil, make([]float32, 6), 2, 3))
	// What was refused elsewhere does no harm here.
	nan := float32(math.NaN())
	require.Len(t, p.Pool(nil, []float32{nan, nan, nan, nan, nan, nan}, 2, 2), 4)
	// Equal vectors are pooled first.
	y := slices.Concat(x[:4], x[4:8], x[:4])
	got := p.Pool(nil, y, 4, 2)
	require.InDeltaSlice(t, y[:8], got, 1e-6)
}

func TestPoolLongDocuments(t *testing.T) {
	const dim, rows = 4, 2*windowTokens + 37
	x := clustered(rows, dim, 30, 0.2, 1)
	var p Pooler
	for _, n := range []int{2, 3, 7} {
		got := p.Pool(nil, x, dim, n)
		require.Len(t, got, PooledRows(rows, n)*dim)
		for i := 0; i < len(got); i += dim {
			require.InDelta(t, 1, dot64(got[i:i+dim], got[i:i+dim]), 1e-5)
		}
	}
}

// clustered are unit vectors about so many centers.
func clustered(rows, dim, clusters int, spread float64, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	centers := make([]float32, clusters*dim)
	for i := range centers {
		centers[i] = float32(r.NormFloat64())
	}
	x := make([]float32, rows*dim)
	for i := range rows {
		at := i % clusters * dim
		normalizeRow(centers[at : at+dim])
		for j := range dim {
			x[i*dim+j] = centers[at+j] + float32(spread*r.NormFloat64()/math.Sqrt(float64(dim)))
		}
		normalizeRow(x[i*dim : (i+1)*dim])
	}
	return x
}

func normalizeRow(x []float32) {
	length := float32(math.Sqrt(dot64(x, x)))
	for j := range x {
		x[j] /= length
	}
}

func dot64(x, y []float32) (sum float64) {
	for j := range x {
		sum += float64(x[j]) * float64(y[j])
	}
	return sum
}
