//go:build linux && amd64 && !purego

package amx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/avx512"
)

// TestFilter compares the sums of the hits, the best ones, and which sums must
// be hits, with plain Go; and the best with those of the AVX-512 loop.
func TestFilter(t *testing.T) {
	if !Supported() {
		t.Skip("this processor or operating system lacks AMX")
	}
	rng := rand.New(rand.NewPCG(3, 2))
	for _, stride := range []int{16, 32, 48, 64, 80, 112, 128, 256} {
		for _, k := range []int{6, 15, 16, 17, 31, 32, 100, 252} {
			t.Run(fmt.Sprintf("stride=%d/K=%d", stride, k), func(t *testing.T) { testFilter(t, rng, stride, k) })
		}
	}
}

func testFilter(t *testing.T, rng *rand.Rand, stride, k int) {
	levels, packed := make([]byte, k*stride), make([]byte, 64*stride)
	for i := range levels {
		levels[i] = byte(rng.Uint32())
	}
	for i := range packed {
		packed[i] = byte(rng.IntN(255) - 127)
	}
	sums := make([][64]int32, k)
	for c := range sums {
		for r := range 64 {
			for j := range stride {
				sums[c][r] += int32(int8(packed[j/4*256+r*4+j%4])) * int32(levels[c*stride+j])
			}
		}
	}
	var best, margin [64]int32
	for r := range best {
		best[r], margin[r] = math.MinInt32/2, int32(rng.IntN(100_000))
	}
	best[5], margin[5] = math.MaxInt32, 0 // not in use
	other := best
	hits := make([][18]int32, 4*(k+16))
	size := Filter(hits, levels, stride, &packed[0], 1000, &best, &margin, k)
	require.Zero(t, size%72)
	seen := map[[2]int]bool{}
	for _, h := range hits[:size/72] {
		c, g := int(h[16])-1000, int(h[17]>>16)
		for i := range 16 {
			require.Equal(t, sums[c][g*16+i], h[i])
			if h[17]>>i&1 == 1 {
				seen[[2]int{g*16 + i, c}] = true
			}
		}
	}
	for r := range 64 {
		for c := range k {
			if sums[c][r] >= best[r]-margin[r] {
				require.True(t, seen[[2]int{r, c}], "row %d, vector %d", r, c)
			}
		}
	}
	avx512.Filter(make([][18]int32, 4*(k+16)), levels, stride, &packed[0], 1000, &other, &margin, k)
	require.Equal(t, other, best)
}

// BenchmarkFilter measures the rate of the products, when nothing is a hit.
func BenchmarkFilter(b *testing.B) {
	if !Supported() {
		b.Skip("this processor or operating system lacks AMX")
	}
	const stride, k = 128, 252
	levels, packed := make([]byte, k*stride), make([]byte, 64*stride)
	var best, margin [64]int32
	for r := range best {
		best[r] = math.MaxInt32
	}
	hits := make([][18]int32, 4*(k+16))
	for range b.N {
		Filter(hits, levels, stride, &packed[0], 0, &best, &margin, k)
	}
	b.ReportMetric(2*64*stride*k*float64(b.N)/float64(b.Elapsed().Nanoseconds())/1000, "TOP/s")
}
