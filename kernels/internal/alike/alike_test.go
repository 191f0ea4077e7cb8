package alike

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAgreeing compares four lanes at a time with one.
func TestAgreeing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		x, y := make([]uint64, (n+lanes-1)/lanes), make([]uint64, (n+lanes-1)/lanes)
		want := 0
		for j := range n {
			a := rapid.OneOf(rapid.Uint16Range(0, 5), rapid.Uint16Range(0, MaxCode), rapid.Uint16Range(MaxCode-5, MaxCode)).Draw(t, "a")
			b := min(max(int(a)+rapid.IntRange(-4, 4).Draw(t, "off"), 0), int(MaxCode))
			if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
				b = int(rapid.Uint16Range(0, MaxCode).Draw(t, "b"))
			}
			x[j/lanes] |= uint64(a) << (j % lanes * 16)
			y[j/lanes] |= uint64(b) << (j % lanes * 16)
			if d := int(a) - b; -2 <= d && d <= 1 {
				want++
			}
		}
		require.Equal(t, want, countAgreeing(x, y, n))
	})
}

// TestCount: tokens that share a part of their components count for that part.
func TestCount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, dim := range []int{1, 3, 16, 17, 96, 128, 1024} {
		for _, n := range []int{1, 2, 32, 70} {
			for _, share := range []float64{0, .3, .5, .9, 1} {
				rows := make([][]Code, n)
				for i := range rows {
					rows[i] = make([]Code, dim)
					for j := range rows[i] {
						rows[i][j] = Code(rng.UintN(1 << 14))
						if i > 0 && float64((j*7+3)%dim) < share*float64(dim) {
							rows[i][j] = rows[0][j]
						}
					}
				}
				dst := make([]float32, n)
				var c Counter
				for range 2 { // the scratch is used again
					c.Count(dst, dim, 1./32, func(i, j int) Code { return rows[i][j] })
				}
				for i, v := range dst {
					require.GreaterOrEqual(t, v, float32(1))
					require.LessOrEqual(t, v, float32(n)+1e-3)
					if dim >= 96 {
						want := 1 + math.Max(0, math.Ceil(share*float64(dim))/float64(dim)-1./32)/(31./32)*float64(n-1)
						require.InDelta(t, want, v, 0.02+float64(n)*0.01, "dim %d, n %d, share %g, token %d", dim, n, share, i)
					}
				}
			}
		}
	}
}

// Sums over columns are those over pairs, where nothing is left out of these, or above
// them; and of tokens that are the same they are no larger.
func TestCountColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim, n := rapid.IntRange(1, 40).Draw(t, "dim"), rapid.IntRange(2, 30).Draw(t, "n")
		most := rapid.SampledFrom([]Code{0, 1, 3, 20, 500, MaxCode}).Draw(t, "most")
		rows := make([][]Code, n)
		for i := range rows {
			rows[i] = rapid.SliceOfN(rapid.Uint16Range(0, most), dim, dim).Draw(t, "row")
			if i > 0 && rapid.Bool().Draw(t, "same") {
				rows[i] = rows[i-1]
			}
		}
		code := func(i, j int) Code { return rows[i][j] }
		var c Counter
		pairs, columns := make([]float32, n), make([]float32, n)
		c.Count(pairs, dim, 1./32, code)
		for range 2 { // the scratch is used again
			c.countColumns(columns, dim, code)
			for i := range pairs {
				want := 0
				for k := range rows {
					for j, x := range rows[k] {
						if d := int(x) - int(rows[i][j]); -2 <= d && d <= 2 {
							want++
						}
					}
				}
				require.InEpsilon(t, float64(want)/float64(dim), columns[i], 2e-3)
				require.GreaterOrEqual(t, columns[i], pairs[i])
			}
		}
	})
}

// The work goes with the tokens, not with their square, however alike they are.
func TestCountOfManyTokens(t *testing.T) {
	defer func(tokens, words int) { maxTokens, maxWords = tokens, words }(maxTokens, maxWords)
	const dim, n = 16, 4000
	dst := make([]float32, n)
	for name, code := range map[string]func(i, j int) Code{
		"same":    func(i, j int) Code { return Code(j) },
		"similar": func(i, j int) Code { return Code(100*j + (i+j)%3) },
	} {
		for _, limit := range []struct{ tokens, words int }{{n - 1, 1 << 40}, {n, 10_000}} {
			maxTokens, maxWords = limit.tokens, limit.words
			var c Counter
			calls := 0
			c.Count(dst, dim, 1./32, func(i, j int) Code { calls++; return code(i, j) })
			require.LessOrEqual(t, calls, 3*n*dim, name)
			for _, v := range dst {
				require.InEpsilon(t, n, v, 2e-3, name)
			}
		}
	}
}
