package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
)

// valueF16 is the value of a binary16 by its definition; infinities are
// 65536, where the next value would be.
func valueF16(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exp, frac := int(h>>10&31), float64(h&1023)
	if exp == 0 {
		return sign * math.Ldexp(frac, -24)
	}
	if exp == 31 && frac == 0 {
		return sign * 65536
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

func TestF16RoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := kernels.F16ToF32(h)
		switch {
		case h&0x7c00 == 0x7c00 && h&0x3ff != 0:
			require.True(t, f != f, "%#x", h)
			g := kernels.F16FromF32(f)
			require.True(t, g&0x7c00 == 0x7c00 && g&0x3ff != 0, "%#x", h)
			continue
		case h&0x7c00 == 0x7c00:
			require.True(t, math.IsInf(float64(f), 1-2*int(h>>15)), "%#x", h)
		default:
			require.Equal(t, valueF16(h), float64(f), "%#x", h)
			require.Equal(t, h>>15 == 1, math.Signbit(float64(f)), "%#x", h)
		}
		require.Equal(t, h, kernels.F16FromF32(f), "%#x", h)
	}
}

// TestF16Rounding looks at both sides of the middle between any two
// neighbours, and at random values.
func TestF16Rounding(t *testing.T) {
	for h := uint16(0); h < 0x7c00; h++ {
		middle := float32((valueF16(h) + valueF16(h+1)) / 2) // exact
		even := h + h&1
		for _, sign := range []uint16{0, 0x8000} {
			s := 1 - 2*float32(sign>>15)
			require.Equal(t, sign|even, kernels.F16FromF32(s*middle), "tie above %#x", h)
			require.Equal(t, sign|h, kernels.F16FromF32(s*math.Nextafter32(middle, 0)), "below the tie above %#x", h)
			require.Equal(t, sign|(h+1), kernels.F16FromF32(s*math.Nextafter32(middle, 1e9)), "above the tie above %#x", h)
		}
	}
	require.Equal(t, uint16(0x7c00), kernels.F16FromF32(math.MaxFloat32))
	require.Equal(t, uint16(0), kernels.F16FromF32(math.SmallestNonzeroFloat32))
}

func TestBF16(t *testing.T) {
	back := func(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
	for i := range 1 << 16 {
		h := uint16(i)
		f := back(h)
		if f != f {
			g := back(kernels.BF16FromF32(f))
			require.True(t, g != g, "%#x", h)
			continue
		}
		require.Equal(t, h, kernels.BF16FromF32(f))
	}
	low := math.Float32frombits(0x7f800001) // a NaN whose upper half alone would be infinite
	g := back(kernels.BF16FromF32(low))
	require.True(t, g != g)

	rng := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		f := math.Float32frombits(rng.Uint32())
		if f != f || math.Abs(float64(f)) > 3e38 {
			continue
		}
		if rng.IntN(4) == 0 { // a tie
			f = math.Float32frombits(math.Float32bits(f)&^0xffff | 0x8000)
		}
		below := uint16(math.Float32bits(f) >> 16) // towards zero
		want := below
		toBelow := math.Abs(float64(f) - float64(back(below)))
		toAbove := math.Abs(float64(back(below+1)) - float64(f))
		if toAbove < toBelow || toAbove == toBelow && below&1 == 1 {
			want++
		}
		require.Equal(t, want, kernels.BF16FromF32(f), "%g", f)
	}
}

func TestCentroidRows(t *testing.T) {
	x := []float32{1, -2, 0.5, 1.0009765625, 3, -0.25}
	for _, typ := range []kernels.FloatType{kernels.BF16, kernels.F16, kernels.F32} {
		data := append([]byte{9}, kerneltest.EncodeCentroids(x, typ)...)
		c := kernels.Centroids{K: 3, Dim: 2, Type: typ, Data: data[1:]}
		got := make([]float32, 4)
		c.Rows(got, 1, 3)
		want := append([]float32{}, x[2:]...)
		if typ == kernels.BF16 {
			want[1] = 1
		}
		require.Equal(t, want, got, typ)
	}
}
