package cpu_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

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
				q.Top(got, n)
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
