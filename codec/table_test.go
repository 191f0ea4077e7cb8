package codec

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/kernels"
)

func TestGridOfAnyWeights(t *testing.T) {
	// A scale below the normal numbers is off by as much, and the end of the grid by so much more.
	tiny := math.MaxInt16 * math.Ldexp(1, -150)
	rapid.Check(t, func(t *rapid.T) {
		nbits := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits")
		w := rapid.SliceOfN(rapid.Float32Range(-2, 2), 1<<nbits, 1<<nbits).Draw(t, "weights")
		c, r, err := FromTable([]float32{1, 0, 0, 1}, kernels.F32, 2, nbits, nil, w)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Kernel().Codebook.Weights()
		var largest, worst float64
		for b := range w {
			largest = max(largest, math.Abs(float64(w[b])))
			worst = max(worst, math.Abs(float64(w[b])-float64(got[b])))
		}
		if worst > largest/32767/2*1.001+tiny || worst > float64(r.Scale)/2*1.001+tiny {
			t.Fatalf("a weight moved by %g; largest %g, scale %g", worst, largest, r.Scale)
		}
		if math.Abs(worst-float64(r.Worst)) > 1e-7*largest+tiny {
			t.Fatalf("report says %g, was %g", r.Worst, worst)
		}
		if w[r.Bucket] != r.Before || got[r.Bucket] != r.After {
			t.Fatalf("report %+v does not fit its bucket", r)
		}
	})
}

func TestRealWeights(t *testing.T) {
	weights, _ := readNPY(t, 0, 4, "lotte-500", "plaid-npy", "bucket_weights.npy")
	cutoffs, _ := readNPY(t, 0, 3, "lotte-500", "plaid-npy", "bucket_cutoffs.npy")
	centroids, dim := readNPY(t, 0, 2048, "lotte-500", "plaid-npy", "centroids.npy")
	require.Equal(t, 128, dim)
	c, r, err := FromTable(centroids, kernels.F16, dim, 2, cutoffs, weights)
	require.NoError(t, err)
	t.Logf("weights %v stored as %v: %+v", weights, c.Kernel().Codebook.Weights(), r)
	require.Less(t, r.Worst, r.Scale/2)
	require.Less(t, r.Worst, 0.002*weights[3])
	require.Equal(t, 2048, c.K)
	require.Equal(t, cutoffs, c.Cutoffs)
	require.Equal(t, centroids, c.Centroids())

	codes, _ := readNPY(t, 0, 1<<20, "lotte-500", "plaid-npy", "codes.npy")
	packed, rb := readNPY(t, 0, 1<<20, "lotte-500", "plaid-npy", "residuals.npy")
	require.Equal(t, c.RowBytes(), rb)
	ids, residuals := make([]uint32, len(codes)), make([]byte, len(packed))
	for i, v := range codes {
		ids[i] = uint32(v)
	}
	for i, v := range packed { // ColBERT's bits run the other way in a byte
		var b byte
		for bit := range 8 {
			b |= byte(v) >> (7 - bit) & 1 << bit
		}
		residuals[i] = b
	}
	ctx := context.Background()
	f, err := c.MaxFactor(ctx, ids, residuals, 0)
	require.NoError(t, err)
	c = c.WithFactorMax(f)
	var blk Block
	require.NoError(t, c.EncodeFixed(ctx, &blk, ids, residuals, 0))
	t.Logf("largest factor %g of %d tokens, %d clamped", f, blk.Tokens, blk.Clamped)
	require.Zero(t, blk.Clamped)
	ch := blk.Chunk(c, []uint32{0, uint32(blk.Tokens)})
	require.NoError(t, ch.Validate(c.Kernel()))
	y := make([]float32, 1000*dim)
	c.DecodeTokens(y, &ch, 500, 1500)
	for i := range 1000 {
		row := y[i*dim : (i+1)*dim]
		require.InDelta(t, 1, dot64(row, row), 2e-4)
	}
}

func TestCentroidsKeepTheirBits(t *testing.T) {
	f16 := []float32{kernels.F16ToF32(0x0001), -1, kernels.F16ToF32(0x3c01), float32(math.Copysign(0, -1))}
	c, _, err := FromTable(f16, kernels.F16, 2, 1, nil, []float32{-1, 1})
	require.NoError(t, err)
	for i, v := range c.Centroids() {
		require.Equal(t, math.Float32bits(f16[i]), math.Float32bits(v))
	}
	require.Equal(t, []byte{0x01, 0, 0, 0xbc, 0x01, 0x3c, 0, 0x80}, c.Kernel().Centroids.Data)
	_, _, err = FromTable(f16, kernels.BF16, 2, 1, nil, []float32{-1, 1})
	require.ErrorIs(t, err, ErrValue) // 0x3c01 has a bit too many for bfloat16
	require.ErrorContains(t, err, "centroid 1, dimension 0")
}

func TestFromTableRefusesBadInput(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := []float32{1, 0, 0, 1}
	w2, c2 := []float32{-3, -1, 1, 3}, []float32{-2, 0, 2}
	cases := map[string]struct {
		centroids  []float32
		typ        kernels.FloatType
		dim, nbits int
		cut, w     []float32
		want       error
	}{
		"no centroids":       {nil, kernels.F32, 2, 2, c2, w2, ErrShape},
		"odd centroids":      {good[:3], kernels.F32, 2, 2, c2, w2, ErrShape},
		"dimension":          {good, kernels.F32, 0, 2, c2, w2, ErrShape},
		"large dimension":    {make([]float32, 5000), kernels.F32, 5000, 2, c2, w2, kernels.ErrShape},
		"bits":               {good, kernels.F32, 2, 3, c2, w2, kernels.ErrShape},
		"too many bits":      {good, kernels.F32, 2, 99, c2, w2, kernels.ErrShape},
		"type":               {good, 9, 2, 2, c2, w2, ErrShape},
		"few weights":        {good, kernels.F32, 2, 2, c2, w2[:3], ErrShape},
		"few cutoffs":        {good, kernels.F32, 2, 2, c2[:2], w2, ErrShape},
		"weight NaN":         {good, kernels.F32, 2, 1, nil, []float32{0, nan}, ErrValue},
		"weight Inf":         {good, kernels.F32, 2, 1, nil, []float32{0, inf}, ErrValue},
		"cutoff NaN":         {good, kernels.F32, 2, 1, []float32{nan}, w2[:2], ErrValue},
		"cutoffs decreasing": {good, kernels.F32, 2, 2, []float32{0, -1, 1}, w2, ErrValue},
		"centroid NaN":       {[]float32{1, nan}, kernels.F16, 2, 2, c2, w2, ErrValue},
	}
	for name, tc := range cases {
		_, _, err := FromTable(tc.centroids, tc.typ, tc.dim, tc.nbits, tc.cut, tc.w)
		require.ErrorIs(t, err, tc.want, name)
	}
}

func TestTableWithoutCutoffs(t *testing.T) {
	c, _, err := FromTable([]float32{1, 0}, kernels.F32, 2, 2, nil, []float32{-4, -1, 1, 2})
	require.NoError(t, err)
	require.InDeltaSlice(t, []float32{-2.5, 0, 1.5}, c.Cutoffs, 0.05)
	c, err = c.WithCutoffs([]float32{-1, 0, 1})
	require.NoError(t, err)
	require.Equal(t, []float32{-1, 0, 1}, c.Cutoffs)

	down, _, err := FromTable([]float32{1, 0}, kernels.F32, 2, 1, nil, []float32{1, -1})
	require.NoError(t, err)
	require.Nil(t, down.Cutoffs)
	var b Block
	require.ErrorIs(t, down.Encode(context.Background(), &b, []float32{1, 0}, 1, backend(t)), ErrNoCutoffs)
	require.NoError(t, down.EncodeFixed(context.Background(), &b, []uint32{0}, []byte{0}, 1))
	require.Equal(t, 1, b.Tokens)

	// All weights zero: nothing but centroids is left, and that is legal.
	flat, r, err := FromTable([]float32{1, 0}, kernels.F32, 2, 1, nil, []float32{0, 0})
	require.NoError(t, err)
	require.Zero(t, r.Worst)
	require.Equal(t, []float32{0, 0}, flat.Kernel().Codebook.Weights())
}

func TestNewRefusesBadCodecs(t *testing.T) {
	good := func() kernels.Codec {
		return kernels.Codec{
			Centroids: kernels.Centroids{K: 1, Dim: 2, Type: kernels.BF16, Data: make([]byte, 4)},
			Codebook:  kernels.Codebook{Nbits: 2, Step: 0.1},
			FactorMax: 2,
		}
	}
	c, err := New(good())
	require.NoError(t, err)
	require.Nil(t, c.Cutoffs)
	require.Equal(t, 2, c.Dim)
	require.Equal(t, 1, c.RowBytes())
	_, err = c.WithCutoffs([]float32{-1, 0, 1})
	require.ErrorIs(t, err, ErrShape)

	k := good()
	k.FactorMax = 0
	_, err = New(k)
	require.ErrorIs(t, err, kernels.ErrShape)
	for _, s := range []float32{0, -1, float32(math.NaN()), float32(math.Inf(1))} {
		k = good()
		k.DimScale = []float32{1, s}
		_, err = New(k)
		require.ErrorIs(t, err, ErrValue)
		k = good()
		k.CentroidScale = []float32{s}
		_, err = New(k)
		require.ErrorIs(t, err, ErrValue)
	}
}
