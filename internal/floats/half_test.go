package floats

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecode: every half, many at once, as one by one.
func TestDecode(t *testing.T) {
	src := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	dst := make([]float32, 1<<16)
	DecodeFloat16(dst, src)
	for i, v := range dst {
		want := Float32(uint16(i))
		if want != want {
			require.True(t, v != v, "%#x", i)
			continue
		}
		require.Equal(t, math.Float32bits(want), math.Float32bits(v), "%#x", i)
		require.Equal(t, uint16(i), Float16(v), "%#x", i)
	}
}

// TestEncode: float32 of all exponents, and those halfway between two halves, in runs of
// all lengths, as one by one; and what is not finite is noticed at each place.
func TestEncode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		for range 300 {
			src := make([]float32, n)
			finite := true
			for i := range src {
				switch src[i] = math.Float32frombits(rng.Uint32()); rng.IntN(3) {
				case 0:
					src[i] = Float32(uint16(rng.IntN(0x7c00)))
					src[i] += (Float32(Float16(src[i])+1) - src[i]) / 2
				case 1:
					src[i] = float32(rng.NormFloat64())
				}
				h := Float16(src[i]) & 0x7fff
				finite = finite && h < 0x7c00
			}
			dst := make([]byte, 2*n+1)
			dst[2*n] = 77
			require.Equal(t, finite, EncodeFloat16(dst, src), "%v", src)
			require.Equal(t, byte(77), dst[2*n])
			for i, v := range src {
				if v == v {
					require.Equal(t, Float16(v), binary.LittleEndian.Uint16(dst[2*i:]), "%v", v)
				}
			}
		}
		for i := range n {
			for _, v := range []float32{65520, -65520, float32(math.Inf(1)), float32(math.NaN())} {
				src := make([]float32, n)
				src[i] = v
				require.False(t, EncodeFloat16(make([]byte, 2*n), src), "%d of %d", i, n)
				src[i] = 65519
				require.True(t, EncodeFloat16(make([]byte, 2*n), src))
			}
		}
	}
}
