package cpu_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

// The probable bound grows with the root of the number of query tokens, and is
// below the worst one; tokens that are rounded alike count in full.
func TestShortfall(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, nbits := range []int{1, 2, 4, 8} {
		c := kerneltest.New(kerneltest.Config{Nbits: nbits, K: 200, Lengths: []int{10}})
		vectors := kerneltest.UnitVectors(rng, 64, c.Dim)
		copies := make([]float32, 0, len(vectors)) // of one vector, some longer, some the other way round
		for i := range 64 {
			for _, v := range vectors[:c.Dim] {
				copies = append(copies, v*float32([]int{1, -1, 4}[i%3]))
			}
		}
		for _, b := range append(otherTiers(t), generic(t), anyDim{cpu.TilesInGo(c.Dim)}) {
			s, err := b.Scorer(c.Codec)
			require.NoError(t, err)
			of := func(vectors, weights []float32, b kernels.Bound) float64 {
				short := kerneltest.Prepare(t, s.NewQuery(), c.K, vectors, weights).Shortfall(b)
				return short.ForFactor(c.Codec.FactorMax)
			}
			few, many := of(vectors[:16*c.Dim], nil, kernels.Probable), of(vectors, nil, kernels.Probable)
			if worst := of(vectors[:16*c.Dim], nil, kernels.Worst); few < worst {
				require.InEpsilon(t, 2*few, many, 0.3, "%s, %d bits", b.Name(), nbits)
			}
			require.Less(t, 2*many, of(vectors, nil, kernels.Worst), "%s, %d bits", b.Name(), nbits)
			same := of(copies, nil, kernels.Probable)
			require.Greater(t, 2*same, of(copies, nil, kernels.Worst), "%s, %d bits", b.Name(), nbits)

			weights := make([]float32, 64)
			for i := range weights {
				weights[i] = -1
			}
			require.InEpsilon(t, of(vectors, nil, kernels.Worst), of(vectors, weights, kernels.Probable), 1e-6, "no maximum can be too large")
		}
	}
}

// TestShortfallOfTokensThatShareComponents: tokens that are one but for a part of
// their components, or for a little noise, are rounded alike in the others.
func TestShortfallOfTokensThatShareComponents(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	lengths := make([]int, effort.Cases(60, 150))
	for i := range lengths {
		lengths[i] = 1 + i%3
	}
	most := 0.0
	for _, dim := range []int{32, 128} {
		for _, nbits := range []int{1, 2, 4} {
			if !effort.Long() && (nbits == 2) != (dim == 128) || effort.Brief() && nbits != 2 {
				continue
			}
			c := kerneltest.New(kerneltest.Config{Dim: dim, Nbits: nbits, K: 40, Lengths: lengths, Seed: 5})
			for _, moved := range []int{1, dim / 4, dim / 2, dim} {
				for _, by := range []float32{.3, 5, 127} { // steps of 8 bits
					one := c.Query(1)
					peak := float32(0)
					for _, v := range one {
						peak = max(peak, v, -v)
					}
					var vectors []float32
					for range 64 {
						row := slices.Clone(one)
						for _, j := range rng.Perm(dim)[:moved] {
							row[j] = max(min(row[j]+peak*by*(2*rng.Float32()-1)/127, peak), -peak)
						}
						vectors = append(vectors, row...)
					}
					for _, b := range fuzzTiers(t) {
						s, err := b.Scorer(c.Codec)
						require.NoError(t, err)
						q := kerneltest.Prepare(t, s.NewQuery(), c.K, vectors, nil)
						fast, fine := make([]float32, len(lengths)), make([]float32, len(lengths))
						q.MaxSim(fast, c.Chunk, nil, kernels.Fast)
						q.MaxSim(fine, c.Chunk, nil, kernels.Fine)
						short := q.Shortfall(kernels.Probable)
						for d := range lengths {
							share := (float64(fine[d]) - float64(fast[d])) / short.ForFactor(c.Codec.LargestFactor(c.Chunk, uint32(d)))
							most = max(most, share)
							require.Less(t, share, 0.8, "%s, dim %d, %d bits, %d moved by %g", b.Name(), dim, nbits, moved, by)
						}
					}
				}
			}
		}
	}
	t.Logf("largest share of the bound %.2f", most)
}
