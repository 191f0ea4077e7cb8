package cpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

// Whatever is made of a query as a whole ends when the query is given up, at the latest 64
// tokens later; and nothing of that is left in the next query.
func TestQueriesThatAreGivenUp(t *testing.T) {
	effort.SkipBrief(t, "one goroutine")
	backends := []kernels.Backend{anyDim{cpu.TilesInGo(1)}}
	for _, name := range kernels.Backends() {
		b, err := kernels.Select(name)
		require.NoError(t, err)
		backends = append(backends, b)
	}
	const step = 64
	tokens := effort.Cases(4*step, 10*step)
	places := 2
	if effort.Long() {
		places = 5
	}
	for _, b := range backends {
		for i, cfg := range []kerneltest.Config{{K: 40, Dim: 16, Lengths: []int{5, 7}}, {K: 40, Dim: 16, Nbits: 8, Table: true, Lengths: []int{5, 7}}} {
			t.Run(fmt.Sprint(b.Name(), " ", i), func(t *testing.T) {
				c := kerneltest.New(cfg)
				s, err := b.Scorer(c.Codec)
				require.NoError(t, err)
				vectors := c.Query(tokens)
				dst := make([]float32, c.Chunk.Docs())
				stages := []func(q kernels.Query){
					func(q kernels.Query) { q.TopCentroids(make([]kernels.CentroidScore, 3*tokens), 3) },
					func(q kernels.Query) { q.Approx(dst, c.Chunk, nil) },
					func(q kernels.Query) { q.MaxSim(dst, c.Chunk, nil, kernels.Fast) },
					func(q kernels.Query) { q.MaxSim(dst, c.Chunk, nil, kernels.Fine) },
					func(q kernels.Query) { q.Shortfall(kernels.Probable) },
				}
				all := func(q kernels.Query) (looks []int) { // of Reset to Seal and of each stage
					asked := 0
					q.(kernels.EarlyEnder).EndWith(func() bool { asked++; return false })
					kerneltest.Prepare(t, q, c.K, vectors, nil)
					looks = append(looks, asked)
					for _, stage := range stages {
						asked = 0
						stage(q)
						looks = append(looks, asked)
					}
					return looks
				}
				q := s.NewQuery()
				looks := all(q)
				want := append([]float32(nil), dst...)
				for i, n := range looks {
					if i == len(looks)-1 && q.Shortfall(kernels.Probable) == (kernels.Shortfall{}) {
						continue // level Fast has no errors of its own
					}
					require.GreaterOrEqual(t, n, tokens/step, "stage %d", i)
				}
				// Given up at each place, in each stage.
				for i, stage := range stages {
					for last := 0; last < looks[i+1]; last += 1 + looks[i+1]/places {
						q := s.NewQuery()
						q.(kernels.EarlyEnder).EndWith(nil)
						kerneltest.Prepare(t, q, c.K, vectors, nil)
						asked := 0
						q.(kernels.EarlyEnder).EndWith(func() bool { asked++; return asked > last })
						stage(q)
						// One stage makes several things, each of which hears of the end once.
						require.LessOrEqual(t, asked, last+6, "stage %d", i)
						require.Equal(t, looks, all(q))
						require.Equal(t, want, append([]float32(nil), dst...))
					}
				}
			})
		}
	}
}
