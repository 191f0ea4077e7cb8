package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/internal/tiles"
	"github.com/plaid-ir/plaid/kernels/internal/tiletest"
)

func TestSplitValue(t *testing.T) {
	for _, nbits := range []int{1, 2, 4, 8} {
		split := int32(tiles.Split(nbits))
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
		require.Equal(t, lane, tiletest.Lane(tileColumn(lane)))
	}
}
