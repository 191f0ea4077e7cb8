package codec

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
)

// Decoded tokens have the stored factor, which is the inverse of their length.
func TestFactorRestoresUnitLength(t *testing.T) {
	be := backend(t)
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.IntRange(1, 40).Draw(t, "dim")
		n := rapid.IntRange(1, 60).Draw(t, "n")
		x := clustered(n, dim, 1+n/4, 0.5, rapid.Uint64().Draw(t, "seed"))
		c, _, err := Train(context.Background(), x, dim, TrainOptions{
			K:       rapid.IntRange(1, 10).Draw(t, "K"),
			Nbits:   rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits"),
			Backend: be, Threads: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		var b Block
		if err := c.Encode(context.Background(), &b, x, 1, be); err != nil {
			t.Fatal(err)
		}
		ch := b.Chunk(c, []uint32{0, uint32(n)})
		if err := ch.Validate(c.Kernel()); err != nil {
			t.Fatal(err)
		}
		rb := c.RowBytes()
		raw, dec := make([]float32, dim), make([]float32, n*dim)
		c.DecodeTokens(dec, &ch, 0, n)
		for i := range n {
			c.reconstruct(raw, ch.Code(i), b.Residuals[i*rb:(i+1)*rb])
			// The stored factor is within half a unit of the exact one.
			exact := math.Min(inverseNorm(dot64(raw, raw)), float64(c.Kernel().FactorMax))
			stored := float64(c.Kernel().Factor(ch.Factor(i)))
			if math.Abs(exact-stored) > float64(c.Kernel().FactorMax)/32767*0.51 {
				t.Fatalf("token %d: factor %g, want %g", i, stored, exact)
			}
			for j, y := range raw {
				if math.Abs(float64(dec[i*dim+j])-float64(y)*stored) > 1e-6 {
					t.Fatalf("token %d, dimension %d decodes to %g, want %g", i, j, dec[i*dim+j], float64(y)*stored)
				}
			}
		}
	})
}

func TestDecodeWithScales(t *testing.T) {
	const dim, k = 5, 3
	centroids := clustered(k, dim, k, 1, 1)
	codec := kernels.Codec{
		Centroids:     kernels.Centroids{K: k, Dim: dim, Type: kernels.BF16, Data: bf16Bytes(centroids)},
		DimScale:      []float32{0.5, 1, 2, 3, 0.25},
		CentroidScale: []float32{1, 2, 0.5},
		FactorMax:     2,
	}
	x := clustered(90, dim, 9, 1, 2)
	for _, nbits := range []int{1, 2, 4, 8} {
		codec.Codebook = kernels.Codebook{Nbits: nbits, Step: 0.3}
		c, err := New(codec)
		require.NoError(t, err)
		b := encode(t, c, x, 1)
		ch := b.Chunk(c, []uint32{0, 90})
		w := codec.Codebook.Weights()
		y := make([]float32, 90*dim)
		c.DecodeTokens(y, &ch, 0, 90)
		var sumSq float64
		for i := range 90 {
			code := int(ch.Code(i))
			buckets := make([]uint8, dim)
			unpack(buckets, b.Residuals[i*c.RowBytes():(i+1)*c.RowBytes()], nbits)
			for j := range dim {
				s := codec.CentroidScale[code] * codec.DimScale[j]
				cj := c.Centroids()[code*dim+j]
				want := float64(codec.Factor(ch.Factor(i))) * (float64(cj) + float64(s)*float64(w[buckets[j]]))
				require.InDelta(t, want, y[i*dim+j], 1e-6)
				sumSq += math.Pow(float64(x[i*dim+j])-want, 2)
			}
		}
		require.InEpsilon(t, sumSq, b.SumSq, 1e-5)
	}
}

func TestEncodeFixedGivesTheFactorsOfEncode(t *testing.T) {
	effort.SkipBrief(t, "one goroutine")
	ctx := context.Background()
	for _, dim := range []int{1, 7, 16, 130} {
		for _, nbits := range []int{1, 2, 4, 8} {
			x := clustered(1300, dim, 30, 0.8, 6)
			c, _ := mustTrain(t, x, dim, TrainOptions{K: 12, Nbits: nbits, Iterations: 1})
			want := encode(t, c, x, 1)
			ch := want.Chunk(c, nil)
			codes := make([]uint32, 1300)
			for i := range codes {
				codes[i] = ch.Code(i)
			}
			given := slices.Clone(want.Residuals)
			if used := dim * nbits % 8; used != 0 {
				given[c.RowBytes()-1] |= 1 << used // dirt in the padding
			}
			dirty := slices.Clone(given)
			var got Block
			require.NoError(t, c.EncodeFixed(ctx, &got, codes[:600], given[:600*c.RowBytes()], 3))
			require.NoError(t, c.EncodeFixed(ctx, &got, codes[600:], given[600*c.RowBytes():], 2))
			require.Equal(t, dirty, given, "input was changed")
			require.Equal(t, want.Codes, got.Codes)
			require.Equal(t, want.Residuals, got.Residuals)
			require.Equal(t, want.Factors, got.Factors)
			require.Equal(t, want.Clamped, got.Clamped)

			f, err := c.MaxFactor(ctx, codes, given, 3)
			require.NoError(t, err)
			var largest float32
			for i := range codes {
				largest = max(largest, c.Kernel().Factor(ch.Factor(i)))
			}
			if want.Clamped == 0 {
				require.InDelta(t, largest, f, float64(c.Kernel().FactorMax)/32767)
			}
		}
	}
}

func TestFixedErrors(t *testing.T) {
	ctx := context.Background()
	x := clustered(10, 4, 3, 1, 1)
	c, _ := mustTrain(t, x, 4, TrainOptions{K: 3})
	var b Block
	require.ErrorIs(t, c.EncodeFixed(ctx, &b, []uint32{0, 3}, make([]byte, 2), 1), ErrCode)
	require.ErrorIs(t, c.EncodeFixed(ctx, &b, []uint32{0, math.MaxUint32}, make([]byte, 2), 1), ErrCode)
	require.ErrorIs(t, c.EncodeFixed(ctx, &b, []uint32{0}, make([]byte, 2), 1), ErrShape)
	require.ErrorIs(t, c.Encode(ctx, &b, x[:3], 1, backend(t)), ErrShape)
	_, err := c.MaxFactor(ctx, []uint32{9}, make([]byte, 1), 1)
	require.ErrorIs(t, err, ErrCode)
	require.Zero(t, b.Tokens)
	require.Empty(t, b.Codes)

	require.NoError(t, c.EncodeFixed(ctx, &b, nil, nil, 1))
	require.NoError(t, c.Encode(ctx, &b, nil, 1, backend(t)))
	require.Zero(t, b.Tokens)
	f, err := c.MaxFactor(ctx, nil, nil, 0)
	require.NoError(t, err)
	require.Zero(t, f)
}

func TestClampedFactorsAreCounted(t *testing.T) {
	// A residual opposite to the centroid leaves next to nothing of it.
	c, _, err := FromTable([]float32{1, 0}, kernels.BF16, 2, 1, nil, []float32{-1, 0})
	require.NoError(t, err)
	x := []float32{-1, 0, 1, 0, -1, 0}
	b := encode(t, c, x, 1)
	// Rows 0 and 2: residual (−2, 0) gets (−1, 0), and 1 − 1 is 0.
	require.Equal(t, 2, b.Clamped)
	ch := b.Chunk(c, nil)
	require.EqualValues(t, 32767, ch.Factor(0))
	require.InDelta(t, 1, c.Kernel().Factor(ch.Factor(1)), 1e-3)
	f, err := c.MaxFactor(context.Background(), []uint32{0, 0}, b.Residuals[:2], 1)
	require.NoError(t, err)
	require.InEpsilon(t, 1e6, f, 1e-3)
	require.EqualValues(t, maxFactorMax, c.WithFactorMax(f).Kernel().FactorMax)
	require.EqualValues(t, minFactorMax, c.WithFactorMax(0.1).Kernel().FactorMax)
	require.EqualValues(t, minFactorMax, c.WithFactorMax(float32(math.NaN())).Kernel().FactorMax)
	require.EqualValues(t, maxFactorMax, c.Kernel().FactorMax, "the original is unchanged")
}

func TestBlockIsReused(t *testing.T) {
	const dim = 32
	x := clustered(3*blockRows, dim, 9, 1, 1)
	c, _ := mustTrain(t, x, dim, TrainOptions{K: 8})
	whole := encode(t, c, x, 1)
	var b Block
	for range 2 {
		b.Reset()
		// Cut anywhere: appending gives the bytes of one call.
		for _, cut := range [][2]int{{0, 1}, {1, 700}, {700, 700}, {700, 3 * blockRows}} {
			require.NoError(t, c.Encode(context.Background(), &b, x[cut[0]*dim:cut[1]*dim], 2, backend(t)))
		}
		require.Equal(t, whole.Codes, b.Codes)
		require.Equal(t, whole.Residuals, b.Residuals)
		require.Equal(t, whole.Factors, b.Factors)
		require.Equal(t, whole.Tokens, b.Tokens)
		require.InEpsilon(t, whole.SumSq, b.SumSq, 1e-12)
	}
	ctx := context.Background()
	var be kernels.Backend = bruteForce{}
	allocs := testing.AllocsPerRun(5, func() {
		b.Reset()
		if err := c.Encode(ctx, &b, x, 1, be); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, allocs)
}

func TestFourByteCodes(t *testing.T) {
	const k = 1<<16 + 1
	data := make([]float32, k)
	data[k-1] = 1
	c, _, err := FromTable(data, kernels.BF16, 1, 1, nil, []float32{-0.1, 0.1})
	require.NoError(t, err)
	require.Equal(t, 4, c.CodeBytes())
	b := encode(t, c, []float32{1, -1, 1}, 1)
	ch := b.Chunk(c, []uint32{0, 3})
	require.NoError(t, ch.Validate(c.Kernel()))
	require.EqualValues(t, k-1, ch.Code(0))
	require.EqualValues(t, 0, ch.Code(1))
}

func BenchmarkEncode(b *testing.B) {
	const n = 4096
	x := clustered(n, 128, 500, 0.6, 1)
	be := backend(b)
	c, _ := mustTrain(b, x, 128, TrainOptions{K: 256, Iterations: 1})
	var blk Block
	for b.Loop() {
		blk.Reset()
		require.NoError(b, c.Encode(context.Background(), &blk, x, 0, be))
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "tokens/s")
}

// What encoding costs besides the search for the centroid.
func BenchmarkEncodeRow(b *testing.B) {
	x := clustered(1024, 128, 50, 0.6, 1)
	for _, nbits := range []int{1, 2, 4, 8} {
		c, _ := mustTrain(b, x, 128, TrainOptions{K: 4, Nbits: nbits, Iterations: 1})
		var blk Block
		b.Run("nbits="+string(rune('0'+nbits)), func(b *testing.B) {
			for b.Loop() {
				blk.Reset()
				require.NoError(b, c.Encode(context.Background(), &blk, x, 1, firstCentroid{}))
			}
			b.ReportMetric(float64(b.N)*1024/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

type firstCentroid struct{ kernels.Backend }

func (firstCentroid) Nearest(_ context.Context, codes []uint32, _ []float32, _, _ []float32, _ int) error {
	clear(codes)
	return nil
}

func BenchmarkEncodeFixed(b *testing.B) {
	x := clustered(4096, 128, 50, 0.6, 1)
	c, _ := mustTrain(b, x, 128, TrainOptions{K: 64, Iterations: 1})
	enc := encode(b, c, x, 0)
	codes := make([]uint32, 4096)
	var blk Block
	for b.Loop() {
		blk.Reset()
		require.NoError(b, c.EncodeFixed(context.Background(), &blk, codes, enc.Residuals, 1))
	}
	b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds(), "tokens/s")
}

func TestPackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nbits := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits")
		buckets := rapid.SliceOfN(rapid.Uint8Max(uint8(1<<nbits-1)), 0, 70).Draw(t, "buckets")
		n := kernels.RowBytes(len(buckets), nbits)
		packed := make([]byte, n+1)
		for i := range packed {
			packed[i] = 0xa5 // what was there before must not matter
		}
		pack(packed, buckets, nbits)
		if packed[n] != 0xa5 {
			t.Fatal("wrote past the row")
		}
		for j, b := range buckets {
			bit := j * nbits
			if got := packed[bit/8] >> (bit % 8) & uint8(1<<nbits-1); got != b {
				t.Fatalf("field %d is %d, want %d", j, got, b)
			}
		}
		if used := len(buckets) * nbits % 8; used != 0 && packed[n-1]>>used != 0 {
			t.Fatalf("padding of %08b is not zero", packed[n-1])
		}
		back := make([]uint8, len(buckets))
		unpack(back, packed[:n], nbits)
		for j := range back {
			if back[j] != buckets[j] {
				t.Fatalf("field %d came back as %d, want %d", j, back[j], buckets[j])
			}
		}
	})
}

func TestPackOrder(t *testing.T) {
	dst := make([]byte, 2)
	pack(dst, []uint8{1, 2, 3, 0, 2}, 2)
	require.Equal(t, []byte{0b00_11_10_01, 0b10}, dst)
	pack(dst, []uint8{0xff, 0xff, 0xff}, 4) // only the low bits of a number count
	require.Equal(t, []byte{0xff, 0x0f}, dst)
}

// unpack reads len(dst) fields of nbits from packed, the inverse of [pack].
func unpack(dst []uint8, packed []byte, nbits int) {
	if nbits == 8 {
		copy(dst, packed[:len(dst)])
		return
	}
	per := 8 / nbits
	mask := uint8(1<<nbits - 1)
	for j := 0; j < len(dst); j += per {
		p := packed[j/per]
		for i := range dst[j:min(j+per, len(dst))] {
			dst[j+i] = p & mask
			p >>= nbits
		}
	}
}
