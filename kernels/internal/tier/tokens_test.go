package tier

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/testing/fenced"
)

// TestTokens: the loops over compressed tokens of every tier against plain Go, over odd
// lengths, unaligned addresses and arrays that end at an unmapped page.
func TestTokens(t *testing.T) {
	for _, tier := range All {
		for name, test := range map[string]func(*testing.T, Tokens, *rand.Rand){
			"Accumulate": testAccumulate, "Compose": testCompose, "MaxFast": testMaxFast, "MaxFine": testMaxFine,
			"MaxBytes": testMaxBytes, "CentroidScores": testCentroidScores, "Widen": testWiden, "Bytes": testBytes,
			"Words": testWords, "Above": testAbove, "Screen": testScreenTokens, "Coarse": testCoarse,
		} {
			t.Run(tier.Name+"/"+name, func(t *testing.T) { test(t, tier.Tokens, rand.New(rand.NewPCG(1, 7))) })
		}
	}
}

// tables returns n tables whose lanes of the given width are below limit.
func tables(t *testing.T, rng *rand.Rand, n, width int, limit uint64) [][256][8]uint64 {
	tables := fenced.Slice[[256][8]uint64](t, n)
	for p := range tables {
		for b := range tables[p] {
			for w := range tables[p][b] {
				for s := 0; s < 64; s += width {
					tables[p][b][w] |= rng.Uint64N(limit) << s
				}
			}
		}
	}
	return tables
}

func randomBytes(t *testing.T, rng *rand.Rand, n int) []byte {
	b := fenced.Slice[byte](t, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func scaled(t *testing.T, rng *rand.Rand, n int, scale float32) []float32 {
	x := randomFloats(t, rng, n)
	for i := range x {
		x[i] *= scale
	}
	return x
}

func lane16(r *[8]uint64, i int) int { return int(r[i/4] >> (i % 4 * 16) & 0xffff) }
func lane32(r *[8]uint64, i int) uint32 {
	return uint32(r[i/2] >> (i % 2 * 32))
}

func testAccumulate(t *testing.T, l Tokens, rng *rand.Rand) {
	for _, n := range []int{0, 1, 3, 17} {
		for _, p := range []int{0, 1, 7, 8, 9, 16, 21} {
			stride := p + n%3
			tabs := tables(t, rng, p, 64, 1<<58)
			vectors := randomBytes(t, rng, max(0, n*stride-n%3)) // the last one ends early
			acc := fenced.Slice[[8]uint64](t, n)
			want := make([][8]uint64, n)
			for i := range acc {
				for w := range acc[i] {
					acc[i][w] = rng.Uint64N(1 << 60)
					want[i][w] = acc[i][w]
					for j := range p {
						want[i][w] += tabs[j][vectors[i*stride+j]][w]
					}
				}
			}
			l.Accumulate(acc, tabs, vectors, stride)
			require.Equal(t, want, append([][8]uint64{}, acc...))
		}
	}
}

func testCompose(t *testing.T, l Tokens, rng *rand.Rand) {
	lo, hi := &fenced.Slice[[16][8]uint64](t, 1)[0], &fenced.Slice[[16][8]uint64](t, 1)[0]
	for x := range lo {
		for w := range lo[x] {
			lo[x][w], hi[x][w] = rng.Uint64N(1<<60), rng.Uint64N(1<<60)
		}
	}
	table := &fenced.Slice[[256][8]uint64](t, 1)[0]
	l.Compose(table, lo, hi)
	for b := range table {
		for w := range table[b] {
			require.Equal(t, lo[b&15][w]+hi[b>>4][w], table[b][w])
		}
	}
}

// documents returns ranges over n tokens in no order, with empty ones, the
// last tokens among them.
func documents(rng *rand.Rand, n int) [][2]uint32 {
	r := [][2]uint32{{uint32(n - 1), uint32(n)}, {3, 3}, {0, uint32(n)}}
	for range 5 {
		lo := rng.IntN(n)
		r = append(r, [2]uint32{uint32(lo), uint32(lo + rng.IntN(n-lo+1))})
	}
	return append(r, [2]uint32{uint32(n), uint32(n)})
}

func codes(t *testing.T, rng *rand.Rand, n, k, codeBytes int) (packed []byte, plain []int) {
	packed, plain = fenced.Slice[byte](t, n*codeBytes), make([]int, n)
	for i := range plain {
		plain[i] = rng.IntN(k)
		if codeBytes == 2 {
			binary.LittleEndian.PutUint16(packed[2*i:], uint16(plain[i]))
		} else {
			binary.LittleEndian.PutUint32(packed[4*i:], uint32(plain[i]))
		}
	}
	return packed, plain
}

func testMaxFast(t *testing.T, l Tokens, rng *rand.Rand) {
	const k = 37
	for i, p := range []int{1, 2, 7, 8, 12, 16, 33} {
		for _, scaled := range []bool{false, true} {
			n, codeBytes := 5+rng.IntN(60), 2+2*(i&1)
			tabs := tables(t, rng, p, 16, uint64(32000/p))
			scores := fenced.Slice[[8]uint64](t, k)
			for c := range scores {
				for w := range scores[c] {
					scores[c][w] = rng.Uint64() &^ 0x8000_8000_8000_8000
				}
			}
			packed, code := codes(t, rng, n, k, codeBytes)
			residuals, factors := randomBytes(t, rng, n*p), randomBytes(t, rng, 2*n)
			binary.LittleEndian.PutUint16(factors, 0x8000)
			var scales []uint32
			if scaled {
				scales = fenced.Slice[uint32](t, k)
				for c := range scales {
					scales[c] = []uint32{0, 1, 65535, 65536, rng.Uint32N(65537)}[rng.IntN(5)]
				}
			}
			ranges := documents(rng, n)
			best, want := fenced.Slice[[32]int32](t, len(ranges)), make([][32]int32, len(ranges))
			for d, r := range ranges {
				for lane := range best[d] {
					at := lane%2*16 + lane/2
					best[d][at] = -1<<30 + int32(rng.IntN(1<<30))*int32(d%2)
					want[d][at] = best[d][at]
					for tok := r[0]; tok < r[1]; tok++ {
						sum := 0
						for j := range p {
							sum += lane16(&tabs[j][residuals[int(tok)*p+j]], lane)
						}
						if scaled {
							sum = sum * int(scales[code[tok]]) >> 16
						}
						sum += lane16(&scores[code[tok]], lane)
						f := int16(binary.LittleEndian.Uint16(factors[2*tok:]))
						want[d][at] = max(want[d][at], int32(f)*int32(sum-32768))
					}
				}
			}
			l.MaxFast(best, ranges, tabs, scores, packed, codeBytes, residuals, factors, scales)
			require.Equal(t, want, append([][32]int32{}, best...), "%d tables, scaled %v", p, scaled)
		}
	}
}

func testMaxFine(t *testing.T, l Tokens, rng *rand.Rand) {
	const k = 29
	for i, p := range []int{1, 2, 7, 8, 12, 16, 33} {
		for _, lanes := range []int{1, 7, 8, 9, 16} {
			n, codeBytes, stride := 5+rng.IntN(40), 2+2*(i&1), (lanes+7)&^7
			tabs := tables(t, rng, p, 32, 1<<32/uint64(p))
			scores := randomFloats(t, rng, (k-1)*stride+lanes)
			packed, code := codes(t, rng, n, k, codeBytes)
			residuals, factors := randomBytes(t, rng, n*p), randomBytes(t, rng, 2*n)
			var scales []float32
			if lanes%2 == 1 {
				scales = randomFloats(t, rng, k)
			}
			mid, unit := (*[16]float32)(scaled(t, rng, 16, 0.1)), (*[16]float32)(scaled(t, rng, 16, 1e-9))
			ranges := documents(rng, n)
			best, want := fenced.Slice[[16]float32](t, len(ranges)), make([][16]float32, len(ranges))
			for d, r := range ranges {
				for lane := range best[d] {
					best[d][lane] = float32(math.Inf(-1))
				}
				want[d] = best[d]
				for lane := range lanes {
					for tok := r[0]; tok < r[1]; tok++ {
						var sum uint32
						for j := range p {
							sum += lane32(&tabs[j][residuals[int(tok)*p+j]], lane)
						}
						a := float32(1)
						if scales != nil {
							a = scales[code[tok]]
						}
						f := float32(int16(binary.LittleEndian.Uint16(factors[2*tok:])))
						v := float32(unit[lane]*float32(int32(sum^1<<31))) + mid[lane]
						v = float32(f * (scores[code[tok]*stride+lane] + float32(a*v)))
						want[d][lane] = max(want[d][lane], v)
					}
				}
			}
			l.MaxFine(best, ranges, tabs, scores, packed, codeBytes, residuals, factors, scales, stride, lanes, mid, unit)
			for d := range want {
				require.Equal(t, want[d][:lanes], append([]float32{}, best[d][:lanes]...), "%d tables", p)
			}
		}
	}
}

func testMaxBytes(t *testing.T, l Tokens, rng *rand.Rand) {
	const k = 300
	rows := fenced.Slice[[4]uint64](t, k)
	for c := range rows {
		for w := range rows[c] {
			rows[c][w] = rng.Uint64() & 0x7f7f_7f7f_7f7f_7f7f
		}
	}
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 12, 23, 24, 25, 32, 33, 63, 100} {
		for _, codeBytes := range []int{2, 4} {
			packed, code := codes(t, rng, n, k, codeBytes)
			ranges := [][2]uint32{{0, uint32(n)}, {0, 0}, {uint32(n / 2), uint32(n)}, {uint32(n), uint32(n)}}
			best, want := fenced.Slice[[4]uint64](t, len(ranges)), make([][4]uint64, len(ranges))
			for d, r := range ranges {
				best[d] = rows[d]
				for w := range want[d] {
					for s := 0; s < 64; s += 8 {
						b := best[d][w] >> s & 0xff
						for tok := r[0]; tok < r[1]; tok++ {
							b = max(b, rows[code[tok]][w]>>s&0xff)
						}
						want[d][w] |= b << s
					}
				}
			}
			l.MaxBytes(best, ranges, rows, packed, codeBytes)
			require.Equal(t, want, append([][4]uint64{}, best...), "%d tokens", n)
		}
	}
}

func testCentroidScores(t *testing.T, l Tokens, rng *rand.Rand) {
	for _, dim := range []int{1, 2, 15, 64, 100} {
		for _, m := range []int{1, 2, 5, 6, 7, 11, 12, 13, 24, 31, 36} {
			n := 1 + rng.IntN(70)
			var q QueryVectors
			q.Reset(randomFloats(t, rng, n*dim), dim)
			lanes := fenced.Slice[float32](t, len(q.Lanes))
			copy(lanes, q.Lanes)
			q.Lanes = lanes
			rows := randomFloats(t, rng, m*dim)
			lo, hi := randomFloats(t, rng, (n+31)&^31), randomFloats(t, rng, (n+31)&^31)
			compare := func(add func(a, b, sum float32) float32, scores func(dst, lo, hi []float32)) {
				dst, want := fenced.Slice[float32](t, m*q.Stride), make([]float32, m*q.Stride)
				gotLo, gotHi := fenced.Slice[float32](t, len(lo)), fenced.Slice[float32](t, len(hi))
				copy(gotLo, lo)
				copy(gotHi, hi)
				wantLo, wantHi := append([]float32{}, lo[:n]...), append([]float32{}, hi[:n]...)
				for r := range m {
					for s := range n {
						var sum float32
						for j := range dim {
							sum = add(rows[r*dim+j], q.Vectors[s*dim+j], sum)
						}
						want[r*q.Stride+s] = sum
						wantLo[s], wantHi[s] = min(wantLo[s], sum), max(wantHi[s], sum)
					}
				}
				scores(dst, gotLo, gotHi)
				require.Equal(t, want, append([]float32{}, dst...), "dim %d, %d rows, %d columns", dim, m, n)
				require.Equal(t, wantLo, append([]float32{}, gotLo[:n]...))
				require.Equal(t, wantHi, append([]float32{}, gotHi[:n]...))
			}
			compare(floats.FMA, func(dst, lo, hi []float32) { l.CentroidScores(dst, rows, m, &q, lo, hi, nil) })
			ahead := fenced.Slice[byte](t, 4*m*dim)
			compare(floats.FMA, func(dst, lo, hi []float32) { l.CentroidScores(dst, rows, m, &q, lo, hi, ahead) })
			if l.Rounded != nil {
				compare(func(a, b, sum float32) float32 { return sum + float32(a*b) },
					func(dst, lo, hi []float32) { l.Rounded(dst, rows, m, &q, lo, hi) })
			}
		}
	}
}

func testWiden(t *testing.T, l Tokens, rng *rand.Rand) {
	for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 40, 63} {
		src, dst := randomBytes(t, rng, 2*n), fenced.Slice[float32](t, n)
		for i := range n {
			src[2*i+1] &^= 0x40 // no NaN
		}
		if l.WidenBF16 != nil {
			l.WidenBF16(dst, src)
			for i, v := range dst {
				require.Equal(t, uint32(binary.LittleEndian.Uint16(src[2*i:]))<<16, math.Float32bits(v))
			}
		}
		if l.WidenF16 == nil {
			continue
		}
		l.WidenF16(dst, src)
		for i, v := range dst {
			h := binary.LittleEndian.Uint16(src[2*i:])
			want := math.Ldexp(float64(h&0x3ff|0x400), int(h>>10&31)-25)
			if h>>10&31 == 0 {
				want = math.Ldexp(float64(h&0x3ff), -24)
			}
			require.Equal(t, want, math.Abs(float64(v)))
			require.Equal(t, h>>15 == 1, math.Signbit(float64(v)))
		}
	}
}

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
