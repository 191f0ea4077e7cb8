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

// TestLogistic: the activations that are made of the logistic function, against float64.
func TestLogistic(t *testing.T) {
	const n = 16
	for x := float32(-95); x < 95; x += 0.00737 {
		row := make([]float32, 3*n)
		row[0], row[n], row[2*n] = x, x, x
		Swish(row, n, 1, n, 1, 0)
		Swish(row[n:], n, 1, n, GELULinear, GELUCubic)
		Tanh(row[2*n:], n, 1, n)
		y := float64(x)
		near := func(want float64, got float32) {
			require.InDelta(t, want, got, 1e-7+3e-7*math.Abs(want), "%g", x)
		}
		near(y/(1+math.Exp(-y)), row[0])
		near(y/2*(1+math.Tanh(math.Sqrt(2/math.Pi)*(y+0.044715*y*y*y))), row[n])
		near(math.Tanh(y), row[2*n])
	}
}
