package tier

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/testing/fenced"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

// TestVectors: the loops over plain vectors of every tier, at fenced pages, bit for bit
// against plain Go.
func TestVectors(t *testing.T) {
	for _, tier := range Available[1:] {
		rng := rand.New(rand.NewPCG(5, 7))
		t.Run(tier.Name+"/MaxDot", func(t *testing.T) { testMaxDot(t, tier.Vectors, rng) })
		t.Run(tier.Name+"/Squares", func(t *testing.T) { testSquares(t, tier.Vectors, rng) })
		if tier.Vectors.WidenI8 != nil {
			t.Run(tier.Name+"/WidenI8", func(t *testing.T) { testWidenI8(t, tier.Vectors, rng) })
		}
		if tier.Vectors.Screen != nil {
			t.Run(tier.Name+"/Round", func(t *testing.T) { testRound(t, tier.Vectors.Screen, rng) })
			if tier.Vectors.Screen.Halves {
				t.Run(tier.Name+"/Screen", func(t *testing.T) { testHalves(t, tier.Vectors.Screen, rng) })
			} else {
				t.Run(tier.Name+"/Screen", func(t *testing.T) { testScreen(t, tier.Vectors.Screen, rng) })
			}
			t.Run(tier.Name+"/Doubts", func(t *testing.T) { testDoubts(t, tier.Vectors.Screen, rng) })
			t.Run(tier.Name+"/Pairs", func(t *testing.T) { testPairs(t, tier.Vectors.Screen, rng) })
		}
		t.Run(tier.Name+"/Products", func(t *testing.T) { testProducts(t, tier.Vectors, rng) })
		t.Run(tier.Name+"/Zero", func(t *testing.T) { testZero(t, tier.Vectors, rng) })
		t.Run(tier.Name+"/AddRows", func(t *testing.T) { testAddRows(t, tier.Vectors, rng) })
		t.Run(tier.Name+"/AddScaled", func(t *testing.T) { testAddScaled(t, tier.Vectors, rng) })
	}
}

func randomFloats(t *testing.T, rng *rand.Rand, n int) []float32 {
	x := fenced.Slice[float32](t, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func testMaxDot(t *testing.T, v Vectors, rng *rand.Rand) {
	for _, dim := range []int{1, 2, 3, 16, 33, 128} {
		for _, m := range []int{v.Rows, v.Rows + 1, 2*v.Rows - 1, 2 * v.Rows, 3*v.Rows + 2, 61} {
			for _, n := range []int{1, 15, 16, 17, 31, 32} {
				rows, panel := randomFloats(t, rng, m*dim), randomFloats(t, rng, dim*32)
				for i := range rows { // ties, and products that are no numbers
					if dim < 4 {
						rows[i] = float32(math.Round(float64(rows[i])))
					}
				}
				for i := range panel {
					if dim < 4 {
						panel[i] = float32(math.Round(float64(panel[i])))
					}
				}
				rows[rng.IntN(len(rows))] = float32(math.NaN())
				rows[rng.IntN(len(rows))] = float32(math.Inf(1))
				var scales []float32
				if rng.IntN(2) == 0 {
					scales = randomFloats(t, rng, m)
				}
				best, arg := &fenced.Slice[[32]float32](t, 1)[0], &fenced.Slice[[32]int32](t, 1)[0]
				for i := range best {
					best[i], arg[i] = float32(math.Inf(-1)), -1
					if i%5 == 0 {
						best[i], arg[i] = 1, 7
					}
				}
				want, wantArg := *best, *arg
				first := rng.IntN(1 << 30)
				portable.MaxDot(&want, &wantArg, rows, m, dim, first, panel, n, scales)
				v.MaxDot(best, arg, rows, m, dim, first, panel, n, scales)
				require.Equal(t, want[:n], best[:n], "dim %d, %d rows, %d columns", dim, m, n)
				require.Equal(t, wantArg[:n], arg[:n])
			}
		}
	}
}

func testSquares(t *testing.T, v Vectors, rng *rand.Rand) {
	for dim := 1; dim < 50; dim++ {
		m := rng.IntN(5)
		rows := randomFloats(t, rng, m*dim)
		got, want := fenced.Slice[[8]float64](t, m), make([][8]float64, m)
		portable.Squares(want, rows, dim)
		v.Squares(got, rows, dim)
		require.Equal(t, want, append([][8]float64{}, got...), "dim %d", dim)
	}
}

func testAddScaled(t *testing.T, v Vectors, rng *rand.Rand) {
	for n := range 70 {
		x, got := randomFloats(t, rng, n), randomFloats(t, rng, n)
		want := append([]float32{}, got...)
		c := float32(rng.NormFloat64())
		portable.AddScaled(want, x, c)
		v.AddScaled(got, x, c)
		require.Equal(t, want, append([]float32{}, got...), "%d values", n)
	}
}

func testProducts(t *testing.T, v Vectors, rng *rand.Rand) {
	for n := range 50 {
		x, y := randomFloats(t, rng, n), randomFloats(t, rng, n)
		got, want := &fenced.Slice[[8]float64](t, 1)[0], new([8]float64)
		portable.SumProducts(want, x, y)
		v.Products(got, x, y)
		require.Equal(t, *want, *got, "%d values", n)
	}
}

func testAddRows(t *testing.T, v Vectors, rng *rand.Rand) {
	for _, n := range []int{1, 7, 15, 16, 17, 33, 127, 128, 129, 144, 300, 511} {
		for _, entries := range []int{0, 1, 2, 9} {
			rows, got := randomFloats(t, rng, 5*n), randomFloats(t, rng, n)
			list, factors := fenced.Slice[uint32](t, entries), randomFloats(t, rng, entries)
			for i := range list {
				list[i] = uint32(rng.IntN(5))
			}
			want := append([]float32{}, got...)
			portableVectors.AddRows(want, rows, list, factors)
			v.AddRows(got, rows, list, factors)
			require.Equal(t, want, append([]float32{}, got...), "%d values, %d rows", n, entries)
		}
	}
}

func testZero(t *testing.T, v Vectors, rng *rand.Rand) {
	for n := range 100 {
		x := randomFloats(t, rng, n)
		v.Zero(x)
		require.Equal(t, make([]float32, n), append([]float32{}, x...))
	}
	x := randomFloats(t, rng, 1000)
	for lo := range 20 {
		want := append([]float32{}, x...)
		clear(want[lo : 900+lo])
		v.Zero(x[lo : 900+lo])
		require.Equal(t, want, append([]float32{}, x...))
	}
}

func testWidenI8(t *testing.T, v Vectors, rng *rand.Rand) {
	for n := range 100 {
		src, dst, want := fenced.Slice[int8](t, n), fenced.Slice[float32](t, n), make([]float32, n)
		for i := range src {
			src[i] = int8(rng.Uint32())
			want[i] = float32(src[i])
		}
		v.WidenI8(dst, src)
		require.Equal(t, want, append([]float32{}, dst...))
	}
}

func testScreen(t *testing.T, s *Screen, rng *rand.Rand) {
	for _, stride := range []int{4, 8, 64, 132} {
		for _, m := range []int{s.Rows, s.Rows + 1, 2*s.Rows - 1, 50} {
			levels, panel := fenced.Slice[byte](t, m*stride), fenced.Slice[byte](t, 32*stride)
			for i := range levels {
				levels[i] = byte(rng.Uint32())
			}
			for i := range panel {
				panel[i] = byte(rng.IntN(255) - 127)
			}
			start, most := &fenced.Slice[[32]int32](t, 1)[0], &fenced.Slice[[32]float32](t, 1)[0]
			for i := range start {
				start[i], most[i] = int32(rng.IntN(1<<20)-1<<19), 100
			}
			scales, got := randomFloats(t, rng, m), fenced.Slice[[32]float32](t, m)
			want, wantMost := make([][32]float32, m), *most
			for r := range m {
				for c := range 32 {
					sum := start[c]
					for j := range stride {
						sum += int32(levels[r*stride+j]) * int32(int8(panel[j/4*128+4*c+j%4]))
					}
					want[r][c] = float32(sum) * scales[r]
					wantMost[c] = max(wantMost[c], want[r][c])
				}
			}
			s.Products(got, most, levels, stride, panel, start, scales)
			require.Equal(t, want, append([][32]float32{}, got...))
			require.Equal(t, wantMost, *most)
		}
	}
}

func testDoubts(t *testing.T, s *Screen, rng *rand.Rand) {
	for _, m := range []int{1, 2, 31, 50} {
		products, limits := fenced.Slice[[32]float32](t, m), &fenced.Slice[[32]float32](t, 1)[0]
		for r := range products {
			for c := range products[r] {
				products[r][c] = float32(rng.NormFloat64())
			}
		}
		for c := range limits {
			limits[c] = products[rng.IntN(m)][c]
		}
		var want []uint64
		first := rng.IntN(1 << 20)
		for r := range products {
			for c, v := range products[r] {
				if v >= limits[c] {
					want = append(want, uint64(first+r)<<32|uint64(32*r+c))
				}
			}
		}
		got := fenced.Slice[uint64](t, len(want))
		require.Equal(t, len(want), s.Doubts(got, products, limits, first))
		require.Equal(t, want, append([]uint64{}, got...))
	}
	require.Zero(t, s.Doubts(nil, nil, new([32]float32), 3))
}

// testRound holds levels against values; sums may be rounded in any order.
func testRound(t *testing.T, s *Screen, rng *rand.Rand) {
	for _, dim := range []int{1, 3, 4, 13, 15, 16, 17, 31, 32, 33, 48, 63, 64, 100, 128, 129, 200} {
		const m = 5
		stride := s.Stride(dim)
		rows, levels := randomFloats(t, rng, m*dim), fenced.Slice[byte](t, m*stride)
		clear(rows[dim : 2*dim])
		rows[2*dim+rng.IntN(dim)] = 1000
		units, sums := fenced.Slice[float32](t, m), fenced.Slice[[2]float32](t, m)
		s.Round(levels, stride, rows, dim, units, sums)
		s.Round(nil, stride, nil, dim, nil, nil)
		for r := range m {
			var err, length, most float64
			for _, v := range rows[r*dim : (r+1)*dim] {
				most = max(most, math.Abs(float64(v)))
			}
			for j := range stride {
				var level, x float64
				if k := j / 2; s.Halves {
					level = float64(math.Float32frombits(uint32(levels[r*stride+2*k])<<16 | uint32(levels[r*stride+2*k+1])<<24))
					if j%2 == 1 {
						continue
					}
					j = k
				} else {
					level = float64(int(levels[r*stride+j]) - 128)
				}
				if j >= dim {
					require.Zero(t, level, "dim %d, row %d, padding %d", dim, r, j)
					continue
				}
				x = float64(rows[r*dim+j])
				d := x - level*float64(units[r])
				if s.Halves {
					require.LessOrEqual(t, math.Abs(d), math.Abs(x)/256)
				} else {
					require.LessOrEqual(t, math.Abs(d), most/127*.5001)
				}
				err, length = err+d*d, length+x*x
			}
			if s.Halves {
				require.EqualValues(t, 1, units[r])
			} else {
				require.InDelta(t, most/127, units[r], 1e-6*most)
			}
			require.InDelta(t, err, sums[r][0], 1e-5*err, "dim %d, row %d", dim, r)
			require.InDelta(t, length, sums[r][1], 1e-5*length)
		}
	}
}

func testHalves(t *testing.T, s *Screen, rng *rand.Rand) {
	half := func(x []byte, i int) float64 {
		return float64(math.Float32frombits(uint32(x[2*i])<<16 | uint32(x[2*i+1])<<24))
	}
	for k := range 5 {
		dim := 32 * (k + 1)
		for _, m := range []int{s.Rows, s.Rows + 1, 31, 32, 33, 63, 64, 100} {
			levels, panel := fenced.Slice[byte](t, 2*m*dim), fenced.Slice[byte](t, 64*dim)
			for _, x := range [][]byte{levels, panel} {
				for i := range len(x) / 2 {
					bits := math.Float32bits(float32(rng.NormFloat64()))
					x[2*i], x[2*i+1] = byte(bits>>16), byte(bits>>24)
				}
			}
			most := &fenced.Slice[[32]float32](t, 1)[0]
			for i := range most {
				most[i] = 1
			}
			var factors []float32
			if m%2 == 1 {
				factors = randomFloats(t, rng, m)
			}
			got, want := fenced.Slice[[32]float32](t, m), *most
			s.Products(got, most, levels, 2*dim, panel, nil, factors)
			for r := range m {
				for c := range 32 {
					sum, size := 0.0, 0.0
					for j := range dim {
						p := half(levels, r*dim+j) * half(panel, j/2*64+2*c+j%2)
						sum, size = sum+p, size+math.Abs(p)
					}
					if factors != nil {
						sum, size = sum*float64(factors[r]), size*math.Abs(float64(factors[r]))
					}
					require.InDelta(t, sum, got[r][c], size*float64(dim+2)/(1<<24), "dim %d, %d rows, row %d, column %d", dim, m, r, c)
					want[c] = max(want[c], got[r][c])
				}
			}
			require.Equal(t, want, *most)
		}
	}
}

func testPairs(t *testing.T, s *Screen, rng *rand.Rand) {
	for _, dim := range []int{1, 7, 15, 16, 17, 31, 32, 33, 48, 100, 128} {
		rows, panel := randomFloats(t, rng, 9*dim), randomFloats(t, rng, 32*dim)
		var factors []float32
		if dim%2 == 1 {
			factors = randomFloats(t, rng, 9)
		}
		best, arg := &fenced.Slice[[32]float32](t, 1)[0], &fenced.Slice[[32]int32](t, 1)[0]
		var want [32]float32
		var wantArg [32]int32
		list := fenced.Slice[uint64](t, 96)
		for i := range list {
			r, c := rng.IntN(9), rng.IntN(32)
			list[i] = uint64(100+r)<<32 | uint64(32*r+c)
			var sum float32
			for j := range dim {
				sum = floats.FMA(panel[32*j+c], rows[r*dim+j], sum)
			}
			if factors != nil {
				sum *= factors[r]
			}
			if sum > want[c] {
				want[c], wantArg[c] = sum, int32(100+r)
			}
		}
		s.Pairs(best, arg, list, rows, dim, panel, factors)
		require.Equal(t, want, *best, "dim %d", dim)
		require.Equal(t, wantArg, *arg)
		s.Pairs(best, arg, nil, nil, dim, nil, nil)
	}
}
