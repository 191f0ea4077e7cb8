package codec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was never trained keeps vectors of any kind within what its comment promises.
func TestFlat(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dim := range []int{1, 2, 3, 48, 128, 300} {
		c, err := Flat(dim)
		require.NoError(t, err)
		for _, spread := range []float64{0, 1, 4} { // from equal components to one large one
			const n = 50
			x := make([]float32, n*dim)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * math.Exp(spread*rng.NormFloat64()))
			}
			Normalize(x, dim)
			want, got := 0.0, 0.0
			for i := 0; i < len(x); i += dim {
				m := 1 / float64(inverseLargest(x[i:i+dim]))
				want += m * m * float64(dim) / 255 / 255
			}
			var b Block
			require.NoError(t, c.Encode(t.Context(), &b, x, 1, backend(t)))
			require.Zero(t, b.Clamped)
			got = b.SumSq
			require.LessOrEqual(t, math.Sqrt(got/n), math.Sqrt(want/n)+1e-4, "dim %d, spread %g", dim, spread)
		}
	}
	_, err := Flat(0)
	require.ErrorIs(t, err, ErrShape)
}
