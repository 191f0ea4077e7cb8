package floats

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// exactFMA is a·b + c by arithmetic of any precision.
func exactFMA(a, b, c float32) float32 {
	x := new(big.Float).SetPrec(700).Mul(new(big.Float).SetFloat64(float64(a)), new(big.Float).SetFloat64(float64(b)))
	f, _ := x.SetPrec(700).Add(x, new(big.Float).SetFloat64(float64(c))).Float32()
	return f
}

// TestFMA: also where float64 ends halfway between two float32, and where the
// result is subnormal; there rounding twice gives other bits.
func TestFMA(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	same := func(a, b, c float32) bool {
		want, got := exactFMA(a, b, c), FMA(a, b, c)
		if want == 0 && got == 0 { // the sign of an exact 0 is for the processor to say
			return true
		}
		require.Equal(t, math.Float32bits(want), math.Float32bits(got), "%x·%x+%x", a, b, c)
		return math.Float32bits(float32(float64(a)*float64(b)+float64(c))) == math.Float32bits(want)
	}
	once := 0
	for range effort.Cases(10_000, 300_000) {
		a := math.Float32frombits(rng.Uint32()&0x807fffff | (100+rng.Uint32N(60))<<23)
		b := math.Float32frombits(rng.Uint32()&0x807fffff | (100+rng.Uint32N(60))<<23)
		c := math.Float32frombits(rng.Uint32()&0x807fffff | (40+rng.Uint32N(160))<<23)
		same(a, b, c)
		// A product of half a unit of c, and a little more or less.
		p := float32(math.Ldexp(1, int(rng.Int32N(20))))
		half := math.Float32frombits(math.Float32bits(c)&0xff800000) * 0x1p-24
		for _, near := range []float32{0, 0x1p-23, -0x1p-23} {
			if !same((1+near)*p, (1-near)*half/p, c) || !same((1+near)*p, (1+near)*half/p, -c) {
				once++
			}
		}
		// Results below the least normal number.
		d := math.Float32frombits(rng.Uint32() & 0x80ffffff)
		if !same(math.Float32frombits(rng.Uint32()&0x807fffff|60<<23), math.Float32frombits(rng.Uint32()&0x807fffff|66<<23), d) {
			once++
		}
		if !same(math.Float32frombits(rng.Uint32()&0x807fffff|30<<23), math.Float32frombits(rng.Uint32()&0x807fffff|66<<23), c*0x1p-60) {
			once++
		}
	}
	require.Positive(t, once, "no case where rounding twice differs")
}

func TestFMASpecial(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	require.Equal(t, inf, FMA(inf, 2, 1))
	require.Equal(t, -inf, FMA(1, 1, -inf))
	require.True(t, math.IsNaN(float64(FMA(inf, 1, -inf))))
	require.True(t, math.IsNaN(float64(FMA(nan, 1, 1))))
	require.Equal(t, inf, FMA(math.MaxFloat32, 2, 0))
	require.Equal(t, float32(0), FMA(0, 1, 0))
}

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
		for range effort.Cases(60, 300) {
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
		sumSquaresPortable(&sum, x[:n/4*4])
		for _, v := range x[n/4*4:] {
			f := float64(v)
			sum[0] += float64(f * f)
		}
		want := sum[0] + sum[1] + sum[2] + sum[3]
		if got := SquaredNorm(x); !math.IsNaN(want) || !math.IsNaN(got) {
			require.Equal(t, math.Float64bits(want), math.Float64bits(got))
		}

		scaled := append([]float32{}, x...)
		scalePortable(scaled, by)
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

// All values of 16 bits, at every place of a row.
func TestNotFinite16(t *testing.T) {
	for _, exponent := range []uint16{0x7c00, 0x7f80} {
		for n := range 40 {
			x := make([]uint16, n)
			require.Equal(t, n, FirstNotFinite16(x, exponent))
		}
		x := make([]uint16, 19)
		for v := range 1 << 16 {
			i := v % len(x)
			clear(x)
			for j := range i {
				x[j] = ^exponent&0x7fff | exponent&(exponent<<1) | 0x8000 // the largest finite one
			}
			x[i] = uint16(v)
			want := len(x)
			if uint16(v)&exponent == exponent {
				want = i
			}
			require.Equal(t, want, FirstNotFinite16(x, exponent), "%x at %d", v, i)
		}
	}
}
