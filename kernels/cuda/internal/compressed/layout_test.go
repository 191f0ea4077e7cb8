package compressed

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
)

// TestAlike: multiples of a vector, and vectors that are one in many components, count;
// unrelated ones do not.
func TestAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, mode := range []int{2, tableMode, halfMode + 2} {
		for _, dim := range []int{64, 128, 100} {
			for _, n := range []int{1, 5, 32, 33, 70} {
				s := &shape{dim: dim, mode: mode}
				groups := (n + columns - 1) / columns
				alike := func(vectors []float32) []float32 {
					raw := make([]byte, 4*groups*columns)
					for i := range raw {
						raw[i] = 0xff
					}
					s.putAlike(raw, vectors, groups)
					got := make([]float32, groups*columns)
					for i := range got {
						got[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
					}
					require.Equal(t, make([]float32, len(got)-n), got[n:])
					return got[:n]
				}
				one := kerneltest.UnitVectors(rng, 1, dim)
				largest := 0
				for j, v := range one {
					if v*v > one[largest]*one[largest] {
						largest = j
					}
				}
				var multiples, moved []float32
				for i := range n {
					j := rng.IntN(dim)
					if j == largest {
						j = (j + 1) % dim
					}
					for at, v := range one {
						multiples = append(multiples, v*float32([]float64{1, -1, 4, 0.1}[i%4]))
						if at == j {
							v *= rng.Float32()
						}
						moved = append(moved, v)
					}
				}
				for _, v := range alike(multiples) {
					require.InDelta(t, n, v, 0.01*float64(n), "mode %d", mode)
				}
				for _, v := range alike(moved) {
					require.InDelta(t, n, v, 0.15*float64(n), "mode %d", mode)
				}
				sum := float32(0)
				for _, v := range alike(kerneltest.UnitVectors(rng, n, dim)) {
					sum += v
				}
				require.Less(t, sum, 1.2*float32(n), "mode %d", mode)
			}
		}
	}
}

func BenchmarkAlike(b *testing.B) {
	v := kerneltest.UnitVectors(rand.New(rand.NewPCG(1, 2)), 32, 128)
	dst := make([]byte, 4*columns)
	s := &shape{dim: 128, mode: halfMode + 2}
	for b.Loop() {
		s.putAlike(dst, v, 1)
	}
}
