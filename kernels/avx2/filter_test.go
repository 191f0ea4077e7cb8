//go:build amd64 && !purego

package avx2

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilterLoops runs Range, Levels, Pack and Filter one after the other and
// compares each with plain Go.
func TestFilterLoops(t *testing.T) {
	if !Supported() {
		t.Skip("this processor lacks AVX2")
	}
	rng := rand.New(rand.NewPCG(3, 1))
	for _, dim := range []int{1, 4, 15, 16, 17, 64, 100} {
		for _, k := range []int{6, 7, 11, 12, 50} {
			t.Run(fmt.Sprintf("d=%d/K=%d", dim, k), func(t *testing.T) { testFilter(t, rng, dim, k) })
		}
	}
}

func testFilter(t *testing.T, rng *rand.Rand, dim, k int) {
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	centroids := normal(k * dim)
	lo, hi := make([]float32, dim), make([]float32, dim)
	copy(lo, centroids)
	copy(hi, centroids)
	Range(lo, hi, centroids)
	step, inverse := make([]float32, dim), make([]float32, dim)
	for j := range dim {
		for c := range k {
			require.LessOrEqual(t, lo[j], centroids[c*dim+j])
			require.GreaterOrEqual(t, hi[j], centroids[c*dim+j])
		}
		step[j] = (hi[j] - lo[j]) / 127
		inverse[j] = 1 / step[j]
	}

	stride := (dim + 15) &^ 15
	levels := make([]byte, k*stride)
	var most, want [4]float64
	var got [4]float32
	Levels(levels, stride, centroids, lo, step, inverse, &got)
	for c := range k {
		var sums [3]float64
		for j := range stride {
			level := float64(levels[c*stride+j])
			if j >= dim {
				require.Zero(t, level)
				continue
			}
			v := float64(centroids[c*dim+j])
			require.InDelta(t, (v-float64(lo[j]))/float64(step[j]), level, 0.501)
			e := v - float64(lo[j]) - float64(step[j])*level
			sums[0] += e * e
			sums[1] += v * v
			sums[2] += (level - 63.5) * (level - 63.5)
		}
		for i, s := range sums {
			most[i] = max(most[i], s)
		}
		most[3] += sums[1]
	}
	want = most
	for i := range want {
		require.InEpsilon(t, want[i]+1e-9, float64(got[i])+1e-9, 1e-3)
	}
	bad := append([]float32{}, centroids...)
	bad[rng.IntN(len(bad))] = float32(math.NaN())
	got = [4]float32{}
	Levels(make([]byte, len(levels)), stride, bad, lo, step, inverse, &got)
	require.NotZero(t, got[3]-got[3], "NaN has to show")

	x, packed := normal(64*dim), make([]byte, 64*stride)
	at := func(row, j int) int { return int(int8(packed[j/4*256+row*4+j%4])) }
	for r := range 64 {
		unit, err, norm := Pack(&packed[4*r], x[r*dim:(r+1)*dim], step)
		var e2, n2 float64
		largest := 0
		for j := range dim {
			v := float64(x[r*dim+j])
			e := v*float64(step[j]) - float64(unit)*float64(at(r, j))
			require.LessOrEqual(t, math.Abs(e), 0.501*float64(unit))
			e2, n2 = e2+e*e, n2+v*v
			largest = max(largest, at(r, j), -at(r, j))
		}
		require.Equal(t, 127, largest)
		require.InDelta(t, e2, float64(err), e2*1e-3+1e-4*float64(unit*unit))
		require.InEpsilon(t, n2, float64(norm), 1e-4)
	}

	var best, margin [64]int32
	for r := range best {
		best[r], margin[r] = math.MinInt32/2, int32(rng.IntN(20000))
	}
	best[5], margin[5] = math.MaxInt32, 0 // not in use
	started := best
	hits := make([][18]int32, 4*(k+6))
	size := Filter(hits, levels, stride, &packed[0], 1000, &best, &margin, k)
	require.Zero(t, size%72)
	seen := map[[2]int]bool{}
	for _, h := range hits[:size/72] {
		c := int(h[16]) - 1000
		for i := range 16 {
			row, sum := int(h[17]>>16)*16+i, 0
			for j := range dim {
				sum += at(row, j) * int(levels[c*stride+j])
			}
			require.EqualValues(t, sum, h[i])
			if h[17]>>i&1 == 1 {
				seen[[2]int{row, c}] = true
			}
		}
	}
	for r := range 64 {
		sums := make([]int, k)
		most := int(started[r])
		for c := range k {
			for j := range dim {
				sums[c] += at(r, j) * int(levels[c*stride+j])
			}
			most = max(most, sums[c])
		}
		require.EqualValues(t, most, best[r])
		for c, s := range sums {
			if s >= most-int(margin[r]) {
				require.True(t, seen[[2]int{r, c}], "row %d, centroid %d", r, c)
			}
		}
	}
}
