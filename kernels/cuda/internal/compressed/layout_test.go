package compressed

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/kernels/kerneltest"
)

// What tells vectors apart at a glance never parts those that count as alike.
func TestVectorsThatPointTheSameWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		dim, n := rapid.IntRange(1, 40).Draw(t, "dim"), rapid.IntRange(1, 40).Draw(t, "vectors")
		part := rapid.SampledFrom([]float32{32, 127}).Draw(t, "part")
		var vectors []float32
		for i := range n {
			v := kerneltest.UnitVectors(rng, 1, dim)
			if i > 0 && rng.IntN(2) == 0 { // a multiple of another, off by about as much as may be
				by, off := float32(math.Exp(4*rng.NormFloat64())), rng.Float32()*1.5/part
				of := vectors[rng.IntN(i)*dim:][:dim]
				for j, x := range of {
					v[j] = (x + off*(2*rng.Float32()-1)*slices.Max(of)) * by
				}
			}
			for j := range v {
				if rng.IntN(4) == 0 && i%3 == 0 {
					v[j] = 0
				}
			}
			vectors = append(vectors, v...)
		}
		row := func(i int) []float32 { return vectors[i*dim : (i+1)*dim] }
		var first []int // of each class
		of, size := make([]int, n), map[int]int{}
		for i := range n {
			of[i] = i
			for _, c := range first {
				peak := 0
				for j, v := range row(c) {
					if math.Abs(float64(v)) > math.Abs(float64(row(c)[peak])) {
						peak = j
					}
				}
				if parallels(row(c), row(i), peak, part) {
					of[i] = c
					break
				}
			}
			if of[i] == i {
				first = append(first, i)
			}
			size[of[i]]++
		}
		groups := (n + columns - 1) / columns
		got := make([]byte, 4*groups*columns)
		putAlike(got, vectors, dim, groups, part)
		for i := range groups * columns {
			want := float32(0)
			if i < n {
				want = float32(size[of[i]])
			}
			require.Equal(t, want, math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])), "vector %d", i)
		}
	})
}

func BenchmarkAlike(b *testing.B) {
	v := kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 2)), 32, 128)
	dst := make([]byte, 4*columns)
	for b.Loop() {
		putAlike(dst, v, 128, 1, 32)
	}
}
