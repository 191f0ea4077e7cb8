package compressed

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// As many groups are side by side as take the least time, where the device has such
// scans and there is room for whole sets.
func TestSideBySide(t *testing.T) {
	half, bytes := &shape{mode: halfMode + 2}, &shape{mode: 2}
	for groups, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 2, 6: 2, 7: 4, 8: 4, 9: 2, 10: 2, 11: 4, 32: 4, 299: 4, 512: 4} {
		require.Equal(t, want, half.sideBySide(groups, mostGroups), "%d groups", groups)
		require.Equal(t, 1, bytes.sideBySide(groups, mostGroups), "%d groups", groups)
		side := half.sideBySide(groups, groups)
		require.Zero(t, groups%side, "%d groups, without room for more", groups)
	}
}

// Queries of a batch, and the groups of a long query, share the decoding of tokens on a
// device that can; of a list, or of what was probed, they do not. Answers are those of
// queries alone.
func TestBatchesShareDecoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	cs := kerneltest.New(kerneltest.Config{Dim: 128, Nbits: 2, CodeBytes: 2, K: 20, Lengths: lengths(rng, 80, 60)})
	c := newCorpus(cs.Codec, split(cs, rng, 2)...)
	query := func(tokens int) kernels.DeviceQuery { return kernels.DeviceQuery{Vectors: cs.Query(tokens), K: 5} }
	queries := func(n int, change func(q *kernels.DeviceQuery)) (qs []kernels.DeviceQuery) {
		for range n {
			q := query(20)
			change(&q)
			qs = append(qs, q)
		}
		return qs
	}
	as := func(*kernels.DeviceQuery) {}
	for name, x := range map[string]struct {
		qs   []kernels.DeviceQuery
		want []int
	}{
		"one":             {queries(1, as), []int{1}},
		"two":             {queries(2, as), []int{2}},
		"seven":           {queries(7, as), []int{4}},
		"a long one":      {[]kernels.DeviceQuery{query(33)}, []int{2}},
		"a long and more": {[]kernels.DeviceQuery{query(100), query(3), query(32), query(64)}, []int{4}},
		"of a list":       {queries(3, func(q *kernels.DeviceQuery) { q.Docs = []uint32{3, 9} })[:1], []int{1}},
		"probed":          {queries(2, func(q *kernels.DeviceQuery) { q.Probes = 20 }), []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f, k := newFake()
			a, err := attach(ctx, runtimetest.OpenFakeHopper(t, f), c, kernels.AttachOptions{}, pieceBytes, false)
			require.NoError(t, err)
			together, err := a.Search(ctx, c, x.qs)
			require.NoError(t, err)
			require.Equal(t, x.want, k.sides)
			for i := range x.qs {
				alone, err := a.Search(ctx, c, x.qs[i:i+1])
				require.NoError(t, err)
				require.Equal(t, alone[0].Docs, together[i].Docs)
				require.Equal(t, alone[0].Scores, together[i].Scores)
			}
		})
	}
}
