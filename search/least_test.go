package search

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/topk"
)

// The candidates that are kept are those of the order of results, of equal gains the first.
func TestCutAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gains := rapid.SliceOfN(rapid.OneOf(
			rapid.Uint32Range(0, gainSum),
			rapid.Uint32Range(5000, 5003),
			rapid.SampledFrom([]uint32{0, 1, gainSum - 1, gainSum, (gainSum + 1) / gainBuckets, (gainSum+1)/gainBuckets - 1}),
		), 2, 400).Draw(t, "gains")
		r := &run{plan: plan{approx: rapid.IntRange(1, len(gains)-1).Draw(t, "n")}}
		r.prober.unit = rapid.SampledFrom([]float64{1, 1.0 / gainSum, 3.7e-8, 1e-30 / gainSum}).Draw(t, "unit")
		for i, g := range gains {
			r.reached = append(r.reached, candidateOf(uint32(3*i), g))
		}
		scored := r.prober.scored(r.reached)
		slices.SortFunc(scored, topk.Order)
		var want []uint32
		for _, s := range scored[:r.plan.approx] {
			want = append(want, s.Doc)
		}
		slices.Sort(want)
		require.Equal(t, want, r.cutReached(r.reached))
	})
}

// Different gains are different scores, also the largest.
func TestGainsAreScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := prober{unit: rapid.Float64Range(1e-30/gainSum, 1e6).Draw(t, "unit")}
		g := rapid.Uint32Range(0, gainSum-1).Draw(t, "gain")
		s := p.scored([]candidate{candidateOf(math.MaxUint32, g+1), candidateOf(0, g)})
		require.Greater(t, s[0].Score, s[1].Score)
		require.EqualValues(t, uint32(math.MaxUint32), s[0].Doc)
	})
}
