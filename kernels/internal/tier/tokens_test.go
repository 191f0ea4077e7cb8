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
	for _, tier := range Available {
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
