package tier

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/fenced"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

// TestVectors: the loops over plain vectors of every tier, at fenced pages, bit for bit
// against plain Go.
func TestVectors(t *testing.T) {
	for _, tier := range All[1:] {
		rng := rand.New(rand.NewPCG(5, 7))
		t.Run(tier.Name+"/MaxDot", func(t *testing.T) { testMaxDot(t, tier.Vectors, rng) })
		t.Run(tier.Name+"/Squares", func(t *testing.T) { testSquares(t, tier.Vectors, rng) })
		t.Run(tier.Name+"/AddScaled", func(t *testing.T) { testAddScaled(t, tier.Vectors, rng) })
	}
}

func floats(t *testing.T, rng *rand.Rand, n int) []float32 {
	x := fenced.Slice[float32](t, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func testMaxDot(t *testing.T, v Vectors, rng *rand.Rand) {
	for _, dim := range []int{1, 2, 3, 16, 33, 128} {
		for _, m := range []int{v.Rows, v.Rows + 1, 2*v.Rows - 1, 2 * v.Rows, 3*v.Rows + 2, 61} {
			for _, n := range []int{1, 15, 16, 17, 31, 32} {
				rows, panel := floats(t, rng, m*dim), floats(t, rng, dim*32)
				for i := range rows { // ties, and products that are no numbers
					if dim < 4 {
						rows[i] = float32(math.Round(float64(rows[i])))
					}
				}
				for i := range panel {
					if dim < 4 {
						panel[i] = float32(math.Round(float64(panel[i])))
					}
				}
				rows[rng.IntN(len(rows))] = float32(math.NaN())
				rows[rng.IntN(len(rows))] = float32(math.Inf(1))
				var scales []float32
				if rng.IntN(2) == 0 {
					scales = floats(t, rng, m)
				}
				best, arg := &fenced.Slice[[32]float32](t, 1)[0], &fenced.Slice[[32]int32](t, 1)[0]
				for i := range best {
					best[i], arg[i] = float32(math.Inf(-1)), -1
					if i%5 == 0 {
						best[i], arg[i] = 1, 7
					}
				}
				want, wantArg := *best, *arg
				first := rng.IntN(1 << 30)
				portable.MaxDot(&want, &wantArg, rows, m, dim, first, panel, n, scales)
				v.MaxDot(best, arg, rows, m, dim, first, panel, n, scales)
				require.Equal(t, want[:n], best[:n], "dim %d, %d rows, %d columns", dim, m, n)
				require.Equal(t, wantArg[:n], arg[:n])
			}
		}
	}
}

func testSquares(t *testing.T, v Vectors, rng *rand.Rand) {
	for dim := 1; dim < 50; dim++ {
		m := rng.IntN(5)
		rows := floats(t, rng, m*dim)
		got, want := fenced.Slice[[8]float64](t, m), make([][8]float64, m)
		portable.Squares(want, rows, dim)
		v.Squares(got, rows, dim)
		require.Equal(t, want, append([][8]float64{}, got...), "dim %d", dim)
	}
}

func testAddScaled(t *testing.T, v Vectors, rng *rand.Rand) {
	for n := range 70 {
		x, got := floats(t, rng, n), floats(t, rng, n)
		want := append([]float32{}, got...)
		c := float32(rng.NormFloat64())
		portable.AddScaled(want, x, c)
		v.AddScaled(got, x, c)
		require.Equal(t, want, append([]float32{}, got...), "%d values", n)
	}
}
