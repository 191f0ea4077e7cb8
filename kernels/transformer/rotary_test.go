package transformer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSincos: to more digits than a table has, as far as texts reach.
func TestSincos(t *testing.T) {
	for x := 0.0; x < 9000; x += 0.317 {
		sin, cos := sincos(x)
		wantSin, wantCos := math.Sincos(x)
		require.InDelta(t, wantSin, sin, 1e-11)
		require.InDelta(t, wantCos, cos, 1e-11)
	}
}
