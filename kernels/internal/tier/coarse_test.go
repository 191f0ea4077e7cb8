package tier

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/fenced"
)

// columns returns the scores of m rows of a multiple of 8 columns, those from
// n on 0, and two sets of parameters.
func columns(t *testing.T, rng *rand.Rand, m, n int) (scores []float32, stride int, x, y *[32]float32) {
	stride = (n + 7) &^ 7
	scores = randomFloats(t, rng, m*stride)
	x, y = new([32]float32), new([32]float32)
	for s := range stride {
		if s < n {
			x[s], y[s] = rng.Float32()*40, float32(rng.NormFloat64())
		} else {
			for r := range m {
				scores[r*stride+s] = 0
			}
		}
	}
	return scores, stride, x, y
}

func testBytes(t *testing.T, l Tokens, rng *rand.Rand) {
	for n := 1; n <= 32; n++ {
		m := rng.IntN(20)
		scores, stride, mul, add := columns(t, rng, m, n)
		dst, want := fenced.Slice[[4]uint64](t, m), make([][4]uint64, m)
		for r := range want {
			for s := range n {
				v := int32(float32(scores[r*stride+s]*mul[s]) + add[s])
				want[r][s/8] |= uint64(min(max(v, 0), 127)) << (s % 8 * 8)
			}
		}
		l.Bytes(dst, scores, stride, n, mul, add)
		require.Equal(t, want, append([][4]uint64{}, dst...))
	}
}

func testWords(t *testing.T, l Tokens, rng *rand.Rand) {
	for n := 1; n <= 32; n++ {
		m := rng.IntN(20)
		scores, stride, mul, low := columns(t, rng, m, n)
		var scales []float32
		if n%2 == 0 {
			scales = randomFloats(t, rng, m)
		}
		for s := range mul {
			mul[s] *= 100
		}
		dst, want := fenced.Slice[[8]uint64](t, m), make([][8]uint64, m)
		for r := range want {
			a := float32(1)
			if scales != nil {
				a = scales[r]
			}
			for s := range n {
				v := float32(scores[r*stride+s]*mul[s]) + float32(a*low[s]) + 32768.5
				want[r][s/4] |= uint64(v) << (s % 4 * 16)
			}
		}
		l.Words(dst, scores, stride, n, mul, low, 32768.5, scales)
		require.Equal(t, want, append([][8]uint64{}, dst...))
	}
}

func testAbove(t *testing.T, l Tokens, rng *rand.Rand) {
	for n := 1; n <= 32; n++ {
		stride := (n+7)&^7 + 8*rng.IntN(2)
		rows := rng.IntN(40)
		// The last row ends where its columns do.
		scores := randomFloats(t, rng, max(rows-1, 0)*stride+(n+7)&^7)
		var limits [32]float32
		for i := range limits {
			limits[i] = float32(math.Inf(1))
			if i < n {
				limits[i] = 0.8 + rng.Float32()*0.2
			}
		}
		var want []uint32
		for r := range rows {
			above := false
			for i := range n {
				if rng.IntN(8) == 0 {
					scores[r*stride+i] = limits[i] // not above
				}
				above = above || scores[r*stride+i] > limits[i]
			}
			if above {
				want = append(want, uint32(r))
			}
		}
		got := fenced.Slice[uint32](t, rows)
		found := l.Above(got, scores, stride, n, &limits)
		require.Equal(t, len(want), found, "n = %d", n)
		require.Equal(t, want, append([]uint32(nil), got[:found]...), "n = %d", n)
	}
}

func testScreenTokens(t *testing.T, l Tokens, rng *rand.Rand) {
	if l.Screen == nil {
		t.Skip("bytes are not multiplied")
	}
	for _, m := range []int{ScreenRows, ScreenRows + 1, 16, 17, 24, 35, 48, 192, 256} {
		for _, stride := range []int{4, 8, 36, 48, 60, 64, 68, 96, 112, 124, 128, 132, 192, 256, 260} {
			levels, panel := randomBytes(t, rng, m*stride), randomBytes(t, rng, 32*stride)
			for i := range panel {
				panel[i] = byte(int8(rng.IntN(127) - 63))
			}
			if m == 24 { // the largest sums of two products
				for i := range panel {
					panel[i] = byte(int8(63 - i/4%2*126))
				}
				for i := range levels {
					levels[i] = 255
				}
			}
			start := &fenced.Slice[[32]int32](t, 1)[0]
			dst, want := fenced.Slice[[32]float32](t, m), make([][32]float32, m)
			for s := range start {
				start[s] = int32(rng.IntN(1<<21) - 1<<20)
				for r := range want {
					sum := start[s]
					for j := range stride {
						sum += int32(levels[r*stride+j]) * int32(int8(panel[j/4*128+s*4+j%4]))
					}
					want[r][s] = float32(sum)
				}
			}
			l.Screen(dst, levels, stride, panel, start)
			require.Equal(t, want, append([][32]float32{}, dst...))
		}
	}
}

// testCoarse: bytes, words and rows found are those of the portable loops for Bytes, Words
// and Above, at the ends of bytes and words, too.
func testCoarse(t *testing.T, l Tokens, rng *rand.Rand) {
	inf := float32(math.Inf(1))
	for i := range 64 {
		m, n := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 192}[i%16], 1+rng.IntN(32)
		products := fenced.Slice[[32]float32](t, m)
		for r := range products {
			for s := range products[r] {
				products[r][s] = float32(rng.IntN(1<<20) - 1<<19) // of columns not in use, too
			}
		}
		c := &fenced.Slice[CoarseUnits](t, 1)[0]
		c.Bias = []float32{32768.5, 32769, 32768.5, 32769}[i/16]
		if l.MaxLevels != nil { // avx512, whose loops go with tiles
			c.Bias = []float32{32768.5, 32769, 65536.5, 0.5}[i/16]
		}
		for s := range c.Limits {
			c.Limits[s] = inf
			if s < n {
				c.MulBytes[s], c.AddBytes[s] = rng.Float32()*0x1p-12, float32(rng.NormFloat64())*100
				if rng.IntN(8) == 0 { // beyond both ends, of 16 bits, too
					c.AddBytes[s] = []float32{-1e9, -1e6, 200, 1e6, 1e9}[rng.IntN(5)]
				}
				c.MulWords[s], c.LowWords[s] = rng.Float32()*0x1p-5, float32(rng.NormFloat64())*1000
				c.Limits[s] = float32(rng.IntN(1<<20) - 1<<19)
				if rng.IntN(4) > 0 {
					c.Limits[s] += 1 << 19
				}
				if rng.IntN(8) == 0 {
					c.Limits[s] = []float32{inf, float32(math.NaN())}[rng.IntN(2)]
				}
			}
		}
		for r := range products { // as large as a limit is not above it
			s := rng.IntN(n)
			if c.Limits[s] < inf {
				products[r][s] = c.Limits[s]
			}
		}
		if i%16 == 14 {
			for s := range n {
				c.Limits[s] = -inf
			}
		}
		var scales []float32
		if i%3 > 0 {
			scales = randomFloats(t, rng, m)
		}
		words, rows, found := fenced.Slice[[8]uint64](t, m), fenced.Slice[[4]uint64](t, m), fenced.Slice[uint64](t, m)
		wantWords, wantRows, wantFound := make([][8]uint64, m), make([][4]uint64, m), make([]uint64, m)
		want := portableTokens.Coarse(wantWords, wantRows, wantFound, products, c, scales)
		got := l.Coarse(words, rows, found, products, c, scales)
		require.Equal(t, wantFound[:want], append([]uint64{}, found[:got]...), "%d rows, %d columns", m, n)
		above := []uint64{}
		for r := range products {
			var columns uint64
			for s, v := range products[r] {
				if v > c.Limits[s] {
					columns |= 1 << s
				}
			}
			if columns != 0 {
				above = append(above, uint64(r)<<32|columns)
			}
		}
		require.Equal(t, above, wantFound[:want])
		require.Equal(t, wantRows, append([][4]uint64{}, rows...), "%d rows, %d columns", m, n)
		require.Equal(t, wantWords, append([][8]uint64{}, words...), "%d rows, %d columns", m, n)
		for r := range products {
			for s := n; s < 32; s++ {
				require.Zero(t, wantRows[r][s/8]>>(s%8*8)&0xff)
			}
		}
	}
}
