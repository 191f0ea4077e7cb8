package cpu_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

// TestErrors measures the error of both levels against the oracle, for
// docs/lab/kernels.md, and holds it to the bound that is promised: with the tier in
// use, which is that of PLAID_CPU, and with the ways of level Fast.
func TestErrors(t *testing.T) {
	be, err := kernels.Select("")
	require.NoError(t, err)
	const k, queries = 512, 2
	for _, nbits := range []int{1, 2, 4, 8} {
		lengths := make([]int, 60)
		if !effort.Long() {
			lengths = lengths[:10]
		}
		rng := rand.New(rand.NewPCG(uint64(nbits), 5))
		for i := range lengths {
			lengths[i] = 40 + rng.IntN(121)
		}
		c := kerneltest.New(kerneltest.Config{Nbits: nbits, K: k, Lengths: lengths})
		vectors := make([][]float32, queries)
		want := make([][]float64, queries)
		for i := range vectors {
			vectors[i] = kerneltest.UnitVectors(rng, 32, c.Dim)
			for d := range lengths {
				v, _ := kernels.OracleMaxSim(c.Codec, vectors[i], nil, c.Chunk, d)
				want[i] = append(want[i], v)
			}
		}
		for _, b := range []struct {
			name string
			be   kernels.Backend
		}{{be.Name(), be}, {"tables", generic(t)}, {"tiles", anyDim{cpu.TilesInGo(1)}}} {
			s, err := b.be.Scorer(c.Codec)
			require.NoError(t, err)
			q := s.NewQuery()
			var largest, square, bound [2]float64
			for i := range vectors {
				kerneltest.Prepare(t, q, k, vectors[i], nil)
				for level := range 2 {
					got := make([]float32, len(lengths))
					q.MaxSim(got, c.Chunk, nil, kernels.Level(level))
					bound[level] = float64(q.ErrorBound(kernels.Level(level)))
					for d, v := range got {
						e := math.Abs(float64(v) - want[i][d])
						require.LessOrEqual(t, e, bound[level])
						largest[level] = max(largest[level], e)
						square[level] += e * e
					}
				}
			}
			rms := math.Sqrt(square[0] / float64(queries*len(lengths)))
			t.Logf("%d bits, %s: fast largest %.1e, rms %.1e, bound %.1e; fine largest %.1e, bound %.1e",
				nbits, b.name, largest[0], rms, bound[0], largest[1], bound[1])
		}
	}
}

func generic(t testing.TB) kernels.Backend {
	t.Helper()
	b, err := kernels.Select("generic")
	require.NoError(t, err)
	return b
}

func TestGeneric(t *testing.T) { kerneltest.Run(t, generic(t)) }

// TestTop compares the best centroids of each query token with sorting.
func TestTop(t *testing.T) {
	for _, k := range []int{1, 7, 300, 1000} {
		if effort.Brief() && k > 300 {
			continue
		}
		c := kerneltest.New(kerneltest.Config{K: k, Lengths: []int{3}})
		report, err := cpu.Describe("")
		require.NoError(t, err)
		for _, lq := range []int{1, 31, 33, 70} {
			vectors := c.Query(lq)
			for _, tier := range report.Tiers {
				b, err := kernels.Select(tier)
				require.NoError(t, err)
				s, err := b.Scorer(c.Codec)
				require.NoError(t, err)
				q := kerneltest.Prepare(t, s.NewQuery(), k, vectors, nil)
				scores, stride := q.Scores()
				for i := range k / 5 { // ties
					copy(scores[(k-1-i)*stride:(k-i)*stride], scores[i*stride:(i+1)*stride])
				}
				n := min(9, k)
				got := make([]kernels.CentroidScore, lq*n)
				q.TopCentroids(got, n)
				for token := range lq {
					all := make([]kernels.CentroidScore, k)
					for j := range all {
						all[j] = kernels.CentroidScore{Centroid: uint32(j), Score: scores[j*stride+token]}
					}
					slices.SortStableFunc(all, func(a, b kernels.CentroidScore) int { return cmp.Compare(b.Score, a.Score) })
					require.Equal(t, all[:n], got[token*n:(token+1)*n], "%s K=%d Lq=%d token %d", tier, k, lq, token)
				}
			}
		}
	}
}
