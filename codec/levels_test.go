package codec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
)

func cosine(x, y []float32) float64 {
	return dot64(x, y) / math.Sqrt(dot64(x, x)*dot64(y, y))
}

// No token may decode to a worse direction than plain rounding gives it, and
// with few dimensions none much worse than the best of all codes.
func TestLevelsGiveGoodDirections(t *testing.T) {
	for _, tc := range []struct {
		dim, nbits int
		exhaustive bool
		scales     bool
	}{
		{1, 2, true, false}, {3, 2, true, true}, {6, 1, true, true}, {4, 2, true, false},
		{33, 1, false, true}, {64, 2, false, true}, {64, 4, false, false}, {16, 8, false, true},
	} {
		const n = 300
		x := clustered(n, tc.dim, 20, 0.9, 3)
		c, _ := mustTrain(t, x, tc.dim, TrainOptions{K: 8, Nbits: tc.nbits, NoDimScales: !tc.scales, NoCentroidScales: !tc.scales})
		b := encode(t, c, x, 1)
		ch := b.Chunk(c, nil)
		rb := c.RowBytes()
		y, packed, r := make([]float32, tc.dim), make([]byte, rb), make([]float32, tc.dim)
		buckets := make([]uint8, tc.dim)
		var found, best float64
		for i := range n {
			row, code := x[i*tc.dim:(i+1)*tc.dim], ch.Code(i)
			got := cosine(row, c.reconstruct(y, code, b.Residuals[i*rb:(i+1)*rb]))

			c.searchResidual(r, row, code)
			for j, v := range r {
				buckets[j] = nearestLevel(v, c.weights)
			}
			pack(packed, buckets, tc.nbits)
			plain := cosine(row, c.reconstruct(y, code, packed))
			require.GreaterOrEqual(t, got, plain-1e-5, "%+v, token %d", tc, i)
			if !tc.exhaustive {
				continue
			}
			most := plain
			for all := range 1 << (tc.dim * tc.nbits) {
				for j := range buckets {
					buckets[j] = uint8(all >> (j * tc.nbits) & (1<<tc.nbits - 1))
				}
				pack(packed, buckets, tc.nbits)
				c.reconstruct(y, code, packed)
				if dot64(y, y) > 0.01 {
					most = max(most, cosine(row, y))
				}
			}
			found, best = found+got, best+most
		}
		if tc.exhaustive {
			require.Greater(t, found/n, best/n-0.02, "%+v", tc)
		}
	}
}

// A code whose decoded vector is too short for any factor must not win.
func TestLevelsKeepLength(t *testing.T) {
	c, err := New(kernels.Codec{
		Centroids: kernels.Centroids{K: 1, Dim: 2, Type: kernels.BF16, Data: bf16Bytes([]float32{1, 0})},
		Codebook:  kernels.Codebook{Nbits: 1, Step: 2}, // 1 − 1 is 0
		FactorMax: 2,
	})
	require.NoError(t, err)
	b := encode(t, c, []float32{0, 1, 0, -1, 0.6, 0.8}, 1)
	require.Zero(t, b.Clamped)
	ch := b.Chunk(c, nil)
	y := make([]float32, 6)
	c.DecodeTokens(y, &ch, 0, 3)
	for i := range 3 {
		require.InDelta(t, 1, dot64(y[2*i:2*i+2], y[2*i:2*i+2]), 1e-3)
	}
}
