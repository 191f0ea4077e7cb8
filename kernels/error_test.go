package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/kerneltest"
)

// TestErrors measures the error of both levels against the oracle, for
// docs/kernels.md, and holds it to the bound that is promised.
func TestErrors(t *testing.T) {
	be, err := kernels.Select("")
	require.NoError(t, err)
	for _, nbits := range []int{1, 2, 4, 8} {
		lengths := make([]int, 100)
		rng := rand.New(rand.NewPCG(uint64(nbits), 5))
		for i := range lengths {
			lengths[i] = 40 + rng.IntN(121)
		}
		c := kerneltest.New(kerneltest.Config{Nbits: nbits, K: 512, Lengths: lengths})
		s, err := be.Scorer(c.Codec)
		require.NoError(t, err)
		q := s.NewQuery()
		var largest, square [2]float64
		n := 0
		for range 3 {
			vectors := kerneltest.UnitVectors(rng, 32, c.Dim)
			kerneltest.Prepare(t, q, 512, vectors, nil)
			for level := range 2 {
				got := make([]float32, len(lengths))
				s.MaxSim(got, []kernels.Query{q}, c.Chunk, nil, kernels.Level(level))
				bound := float64(s.ErrorBound(q, kernels.Level(level)))
				for d, v := range got {
					want, _ := kernels.OracleMaxSim(c.Codec, vectors, nil, c.Chunk, d)
					e := math.Abs(float64(v) - want)
					require.LessOrEqual(t, e, bound)
					largest[level] = max(largest[level], e)
					square[level] += e * e
				}
			}
			n += len(lengths)
		}
		t.Logf("%d bits: fast largest %.1e, rms %.1e; fine largest %.1e", nbits, largest[0], math.Sqrt(square[0]/float64(n)), largest[1])
	}
}
