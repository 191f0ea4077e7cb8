package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/amx"
	"github.com/plaid-ir/plaid/kernels/internal/tiletest"
)

// TilesInGo is the portable backend, or avx512 where there is it, with level
// Fast by matrix products of bytes in plain Go, for one dimension.
func TilesInGo(dim int) Backend {
	p := portable
	for _, t := range tiers {
		if t.name == "avx512" {
			p = *t
		}
	}
	p.name = "tiles in Go"
	p.tiles = func(r *amx.Rerank) { tiletest.Rerank(r, dim) }
	return cpu{&p}
}

func TestSplitValue(t *testing.T) {
	for _, nbits := range []int{1, 2, 4, 8} {
		split := int32(amx.Split(nbits))
		limit := 127*split + split/2 - 1
		for v := -limit; v <= limit; v++ {
			high, low := splitValue(v, split)
			require.Equal(t, v, high*split+low)
			require.LessOrEqual(t, max(high, -high), int32(127))
			require.True(t, low >= -split/2 && low < split/2)
		}
	}
}

func TestTileColumn(t *testing.T) {
	for lane := range 32 {
		require.Equal(t, lane, amx.Lane(tileColumn(lane)))
	}
}
