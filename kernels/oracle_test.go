package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
)

// TestOracleByHand works an example with every part of the definition out on
// paper.
func TestOracleByHand(t *testing.T) {
	codec := &kernels.Codec{
		Centroids: kernels.Centroids{K: 2, Dim: 3, Type: kernels.F32,
			Data: kerneltest.EncodeCentroids([]float32{1, 0, 0, 0, 2, 0}, kernels.F32)},
		Codebook:      kernels.Codebook{Nbits: 2, Step: 2}, // −3 −1 1 3
		DimScale:      []float32{1, 2, 0.5},
		CentroidScale: []float32{1, 0.5},
		FactorMax:     2 * 32767. / 32768,
	}
	chunk := &kernels.Chunk{
		Offsets:   []uint32{0, 0, 2, 3},
		CodeBytes: 2,
		Codes:     []byte{0, 0, 1, 0, 1, 0},
		Residuals: []byte{0b11_01_10, 0b00_11_00, 0b00_11_00},      // (1 −1 3), (−3 3 −3), the same
		Factors:   []byte{0, 0x40, 0, 0x20, 0, 0x40 | 0x80 | 3<<4}, // 1, ½, negative
	}
	require.NoError(t, codec.Validate())
	require.NoError(t, chunk.Validate(codec))

	// 1·((1 0 0) + 1·(1 −2 1.5)); ½·((0 2 0) + ½·(−3 6 −1.5))
	require.InDeltaSlice(t, []float64{2, -2, 1.5}, kernels.OracleDecode(codec, chunk, 0), 1e-6)
	require.InDeltaSlice(t, []float64{-0.75, 2.5, -0.375}, kernels.OracleDecode(codec, chunk, 1), 1e-6)
	factor := float64(int16(-4096)) / 16384 // 0xf000
	require.InDeltaSlice(t, []float64{-1.5 * factor, 5 * factor, -0.75 * factor}, kernels.OracleDecode(codec, chunk, 2), 1e-6)

	q := []float32{1, 0, 0, 0, -1, 0, 0, 1, 2}
	score, argmax := kernels.OracleMaxSim(codec, q, nil, chunk, 1)
	require.InDelta(t, 2+2+1.75, score, 1e-6)
	require.Equal(t, []int{0, 0, 1}, argmax)
	score, _ = kernels.OracleMaxSim(codec, q, []float32{1, 0, -2}, chunk, 1)
	require.InDelta(t, 2-3.5, score, 1e-6)
	score, argmax = kernels.OracleMaxSim(codec, q, nil, chunk, 0)
	require.Zero(t, score)
	require.Equal(t, []int{-1, -1, -1}, argmax)

	codes, scores := kernels.OracleNearest([]float32{1, 0, 0, 1, 0, 1}, []float32{3, 1, 1, 3, -1, -2}, 2)
	require.Equal(t, []uint32{0, 1, 0}, codes)
	require.Equal(t, []float64{3, 3, -1}, scores)
}

func TestOracleFirstOfEqualTokens(t *testing.T) {
	c := kerneltest.New(kerneltest.Config{Lengths: []int{4}})
	for tok := range 4 { // 2 and 3 repeat 1 and 0
		from := min(tok, 3-tok)
		c.SetCode(c.Chunk, tok, int(c.Chunk.Code(from)))
		kerneltest.SetFactor(c.Chunk, tok, c.Chunk.Factor(from))
		copy(c.Chunk.Residuals[tok*32:(tok+1)*32], c.Chunk.Residuals[from*32:])
	}
	_, argmax := kernels.OracleMaxSim(c.Codec, c.Vectors(50), nil, c.Chunk, 0)
	for _, a := range argmax {
		require.Less(t, a, 2)
	}
}

func TestMaxSimFloat(t *testing.T) {
	c := kerneltest.New(kerneltest.Config{Lengths: []int{9}, Dim: 20})
	var d []float32
	for tok := range 9 {
		for _, v := range kernels.OracleDecode(c.Codec, c.Chunk, tok) {
			d = append(d, float32(v))
		}
	}
	q, w := c.Query(5), c.Weights(5, -1, 1)
	want, _ := kernels.OracleMaxSim(c.Codec, q, w, c.Chunk, 0)
	require.InDelta(t, want, kernels.MaxSimFloat(q, w, d, 20), 1e-5)
	require.Zero(t, kernels.MaxSimFloat(q, nil, nil, 20))
	require.Equal(t, -2.0, kernels.MaxSimFloat([]float32{1, 0}, nil, []float32{-3, 0, -2, 5}, 2))
}

func TestValidate(t *testing.T) {
	for name, damage := range map[string]func(*kernels.Codec, *kernels.Chunk){
		"dimension":      func(c *kernels.Codec, _ *kernels.Chunk) { c.Centroids.Dim = 0 },
		"centroids":      func(c *kernels.Codec, _ *kernels.Chunk) { c.Centroids.Data = c.Centroids.Data[1:] },
		"dim scales":     func(c *kernels.Codec, _ *kernels.Chunk) { c.DimScale = make([]float32, 3) },
		"scales":         func(c *kernels.Codec, _ *kernels.Chunk) { c.CentroidScale = make([]float32, 3) },
		"factor":         func(c *kernels.Codec, _ *kernels.Chunk) { c.FactorMax = float32(math.NaN()) },
		"bits":           func(c *kernels.Codec, _ *kernels.Chunk) { c.Codebook.Nbits = 3 },
		"step":           func(c *kernels.Codec, _ *kernels.Chunk) { c.Codebook.Step = float32(math.NaN()) },
		"table":          func(c *kernels.Codec, _ *kernels.Chunk) { c.Codebook.Step = 0 },
		"offsets":        func(_ *kernels.Codec, ch *kernels.Chunk) { ch.Offsets[1] = 99 },
		"code bytes":     func(_ *kernels.Codec, ch *kernels.Chunk) { ch.CodeBytes = 3 },
		"codes":          func(_ *kernels.Codec, ch *kernels.Chunk) { ch.Codes = ch.Codes[1:] },
		"residuals":      func(_ *kernels.Codec, ch *kernels.Chunk) { ch.Residuals = ch.Residuals[1:] },
		"factors":        func(_ *kernels.Codec, ch *kernels.Chunk) { ch.Factors = ch.Factors[1:] },
		"code too large": func(_ *kernels.Codec, ch *kernels.Chunk) { ch.Codes[5] = 1 },
	} {
		c := kerneltest.New(kerneltest.Config{Lengths: []int{2, 3}})
		damage(c.Codec, c.Chunk)
		err := c.Codec.Validate()
		if err == nil {
			err = c.Chunk.Validate(c.Codec)
		}
		require.ErrorIs(t, err, kernels.ErrShape, name)
	}
}

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
