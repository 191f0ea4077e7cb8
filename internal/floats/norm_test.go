package floats

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What a processor does has the bits of the plain loops, for any values.
func TestBitsOfThePlainLoops(t *testing.T) {
	bits := func(x []float32) []uint32 {
		out := make([]uint32, len(x))
		for i, v := range x {
			if out[i] = math.Float32bits(v); v != v {
				out[i] = math.Float32bits(float32(math.NaN()))
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		// Behind what is asked for are values that must neither count nor change.
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float32 {
			return math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		}), 0, 70).Draw(t, "values")
		n := rapid.IntRange(0, len(all)).Draw(t, "n")
		x, behind := all[:n], append([]float32{}, all[n:]...)
		by := rapid.Float64().Draw(t, "by")

		var sum [4]float64
		squaresOf(&sum, x[:n/4*4])
		for _, v := range x[n/4*4:] {
			f := float64(v)
			sum[0] += float64(f * f)
		}
		want := sum[0] + sum[1] + sum[2] + sum[3]
		if got := SquaredNorm(x); !math.IsNaN(want) || !math.IsNaN(got) {
			require.Equal(t, math.Float64bits(want), math.Float64bits(got))
		}

		scaled := append([]float32{}, x...)
		scaleOf(scaled, by)
		Scale(x, by)
		require.Equal(t, bits(scaled), bits(x))
		require.Equal(t, bits(behind), bits(all[n:]))
	})
}

func TestFinite(t *testing.T) {
	for n := range 40 {
		x := make([]float32, n)
		for i := range x {
			x[i] = math.MaxFloat32
		}
		require.True(t, Finite(x), n)
		for i := range x {
			for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				x[i] = float32(v)
				require.False(t, Finite(x), "%d of %d", i, n)
			}
			x[i] = -math.MaxFloat32
		}
	}
}

func BenchmarkNorm(b *testing.B) {
	x := make([]float32, 128)
	for i := range x {
		x[i] = float32(i)
	}
	b.Run("square", func(b *testing.B) {
		for b.Loop() {
			SquaredNorm(x)
		}
	})
	b.Run("scale", func(b *testing.B) {
		for b.Loop() {
			Scale(x, 1)
		}
	})
}
