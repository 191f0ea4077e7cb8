//go:build linux && amd64 && !purego

package amx

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/internal/tiles"
	"github.com/plaid-ir/plaid/kernels/internal/tiletest"
)

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

// TestSelectors: the windows take the fields to where they belong, by the
// definition of VPMULTISHIFTQB.
func TestSelectors(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	for i, n := range []int{1, 2, 4, 8} {
		layout, ok := tiles.NewLayout(64, n)
		require.True(t, ok)
		row := make([]byte, 8*n)
		for range 20 {
			for j := range row {
				row[j] = byte(rng.Uint32())
			}
			for m := range 64 {
				word := binary.LittleEndian.Uint64(row[m/8%n*8:])
				var got [2]byte
				for part := range got {
					got[part] = byte(bits.RotateLeft64(word, -int(selectors[i].from[part][m]))) & selectors[i].mask[part][m]
				}
				bit := layout.OperandField(0, m) * n
				high, low := tiletest.Parts(n, row[bit/8]>>(bit%8)&byte(1<<n-1))
				require.Equal(t, [2]byte{high, low}, got, "%d bits, byte %d", n, m)
			}
		}
	}
}
