package maxsim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestE4M3: every code survives, values between two codes go to the nearest, ties to
// the even one, and what is too large is the largest.
func TestE4M3(t *testing.T) {
	require.Equal(t, float32(maxE4M3), E4M3ToF32(0x7e))
	require.Equal(t, float32(1), E4M3ToF32(0x38))
	require.Equal(t, float32(1.0/512), E4M3ToF32(1))
	for code := range 256 {
		v := E4M3ToF32(uint8(code))
		if code&0x7f == 0x7f {
			require.True(t, math.IsNaN(float64(v)))
			require.Equal(t, uint8(0x7f), e4m3FromF32(v)&0x7f)
			continue
		}
		require.Equal(t, uint8(code), e4m3FromF32(v), "%#x is %g", code, v)
		if code&0x7f >= 0x7e {
			continue
		}
		next := E4M3ToF32(uint8(code + 1))
		half := (v + next) / 2
		require.Equal(t, uint8(code+code&1), e4m3FromF32(half), "%g is between %g and %g", half, v, next)
		require.Equal(t, uint8(code), e4m3FromF32(half-(next-v)/64))
		require.Equal(t, uint8(code+1), e4m3FromF32(half+(next-v)/64))
	}
	require.Equal(t, uint8(0x7e), e4m3FromF32(1e9))
	require.Equal(t, uint8(0xfe), e4m3FromF32(float32(math.Inf(-1))))
}

// TestQuantize: what comes back is within half a step, and zero stays zero.
func TestQuantize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const dim = 33
	x := make([]float32, 20*dim)
	for i := range x {
		x[i] = float32(rng.NormFloat64()*math.Pow(10, float64(i/dim%9-4))) + float32(i/dim%3)
	}
	clear(x[dim : 2*dim])
	for j := range dim {
		x[2*dim+j] = float32(math.Abs(float64(x[2*dim+j]))) + 5 // zero point at the end
	}
	x[3*dim] = 1e-42
	clear(x[3*dim+1 : 4*dim])
	back := make([]float32, dim)
	for _, m := range []Matrix{QuantizeInt8(x, dim), QuantizeInt8Affine(x, dim), QuantizeFP8(x, dim)} {
		require.NoError(t, m.Validate())
		for r := range m.Rows() {
			m.Widen(back, r, r+1)
			var most float64
			for _, v := range x[r*dim : (r+1)*dim] {
				most = max(most, math.Abs(float64(v)))
			}
			for j, v := range back {
				want := float64(x[r*dim+j])
				allowed := 1.01*most/127 + 2e-45
				if m.Type == I8 && m.Zeros == nil {
					allowed = 0.501*most/127 + 2e-45
				} else if m.Type == E4M3 {
					allowed = math.Abs(want)/16 + most/448/512 + 2e-45
				}
				require.InDelta(t, want, float64(v)*float64(m.Scale(r)), allowed, "%s, row %d", m.Type, r)
			}
		}
		require.Equal(t, float32(0), m.Scale(1))
	}
}
