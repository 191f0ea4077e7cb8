package cpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

// anyDim chooses the backend of [cpu.TilesInGo] by the codec.
type anyDim struct{ kernels.Backend }

func (anyDim) Scorer(c *kernels.Codec) (kernels.Scorer, error) {
	return cpu.TilesInGo(max(c.Dim(), 1)).Scorer(c)
}

// TestTilesInGo runs the suite with the matrix products of tier amx in plain
// Go: what is left to be shown on a processor that has them is that they
// compute the same integers.
func TestTilesInGo(t *testing.T) { kerneltest.Run(t, anyDim{cpu.TilesInGo(128)}) }

// TestFineTilesInGo: and that level Fine by matrix products has the bits of the
// others, whatever the shape.
func TestFineTilesInGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 8))
	for _, nbits := range []int{1, 2, 4, 8} {
		for _, dim := range []int{64, 65, 100, 128, 200} {
			for _, lq := range []int{1, 16, 17, 32, 40} {
				if !effort.Long() && rng.IntN(4) > 0 {
					continue
				}
				c := kerneltest.New(kerneltest.Config{
					Dim: dim, Nbits: nbits, K: 50, CodeBytes: 2 + 2*rng.IntN(2), DimScale: rng.IntN(2) == 1, CentroidScale: rng.IntN(2) == 1,
					Lengths: []int{rng.IntN(40), 0, 16, 1, 15, 17, 31 + rng.IntN(9)}, Seed: rng.Uint64(),
				})
				vectors := c.Query(lq)
				docs := []uint32{5, 0, 3, 3, 1}
				of := func(b kernels.Backend) []float32 {
					s, err := b.Scorer(c.Codec)
					require.NoError(t, err)
					q := kerneltest.Prepare(t, s.NewQuery(), c.K, vectors, nil)
					scores := make([]float32, c.Chunk.Docs()+len(docs))
					q.MaxSim(scores, c.Chunk, nil, kernels.Fine)
					q.MaxSim(scores[c.Chunk.Docs():], c.Chunk, docs, kernels.Fine)
					return scores
				}
				require.Equal(t, of(generic(t)), of(anyDim{cpu.TilesInGo(dim)}), "%d bits, dim %d, %d query tokens", nbits, dim, lq)
			}
		}
	}
}

// TestOverflow: a query whose products leave the range of float32 has no finite scores,
// and neither hangs nor panics.
func TestOverflow(t *testing.T) {
	for _, table := range []bool{false, true} {
		for _, nbits := range []int{1, 2, 4, 8} {
			c := kerneltest.New(kerneltest.Config{Dim: 64, Nbits: nbits, Table: table, K: 40, Lengths: []int{30, 0, 7, 100}})
			vectors := c.Query(33)
			for i := range 3 * 64 {
				vectors[i] = 3e38
			}
			for _, b := range fuzzTiers(t) {
				s, err := b.Scorer(c.Codec)
				require.NoError(t, err)
				q := kerneltest.Prepare(t, s.NewQuery(), c.K, vectors, nil)
				scores := make([]float32, c.Chunk.Docs())
				q.Approx(scores, c.Chunk, nil)
				for _, level := range []kernels.Level{kernels.Fine, kernels.Fast} {
					q.MaxSim(scores, c.Chunk, nil, level)
					for d, v := range scores {
						require.Equal(t, d == 1, v-v == 0, "%s, %d bits, table %v, level %v: document %d has %v", b.Name(), nbits, table, level, d, v)
					}
				}
			}
		}
	}
}
