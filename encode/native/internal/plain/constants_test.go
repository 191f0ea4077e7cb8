package plain

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExp and TestGELU: against float64.
func TestExp(t *testing.T) {
	for x := float32(0); x > -87; x -= 0.0137 {
		want := math.Exp(float64(x))
		require.InDelta(t, 1, float64(Exp(x))/want, 1e-7, "e^%g", x)
	}
	require.Equal(t, float32(1), Exp(0))
	require.Zero(t, Exp(-88))
	require.Zero(t, Exp(float32(math.Inf(-1))))
}

func TestGELU(t *testing.T) {
	for x := float32(-12); x < 12; x += 0.00137 {
		want := float64(x) / 2 * math.Erfc(-float64(x)/math.Sqrt2)
		require.InDelta(t, want, GELUOf(x), 6e-7+6e-8*math.Abs(want), "GELU(%g)", x)
	}
}
