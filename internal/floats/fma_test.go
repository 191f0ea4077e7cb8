package floats

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

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
	cases := 300_000
	if !effort.Long() {
		cases = 10_000
	}
	for range cases {
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
