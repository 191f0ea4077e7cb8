package search

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/storage"
)

// What probing knows of a document is compared with what its codes say.
func TestReached(t *testing.T) {
	t.Run("segments", func(t *testing.T) { testReached(t, 200, 6, 20) })
	if !effort.Brief() { // one goroutine, and many documents
		t.Run("blocks", func(t *testing.T) { testReached(t, reachBlock+500, 1, 3000) })
	}
}

func testReached(t *testing.T, docs, tokens, added int) {
	const dim, lists, lq = 16, 96, 6
	m := newMaker(5, dim, 40)
	ix := searchtest.Build(t, dim, m.Docs("a", docs, tokens), &index.BuildOptions{Centroids: lists})
	_, err := ix.Add(context.Background(), searchtest.Source(t, dim, m.Docs("b", added, tokens)), nil)
	require.NoError(t, err)
	_, _, err = ix.Delete(context.Background(), []string{"a1", "b2"})
	require.NoError(t, err)
	snap := searchtest.Snapshot(t, ix)
	require.Greater(t, snap.Segments(), 1)
	live, n := snap.LiveSet()
	all := (&allowance{parts: []*selection{{set: live, count: n}}}).counted()

	q := m.query(lq)
	weights := []float32{1, 0.5, 0, 2, -1, 0.25}
	r := testRun(snap, 1)
	for i, probes := range []int{1, 4, 30, lists, 2} {
		if i == 3 {
			r.prober.stamp = math.MaxUint32 - 2 // the next stamps begin anew
		}
		r.plan = plan{how: PlanProbe, k: 5, probes: probes, approx: math.MaxInt}
		require.NoError(t, r.prepare(q.Vectors, weights, table{all: true}))
		docs, err := r.probe(weights, all)
		require.NoError(t, err)
		n, reached := len(docs), map[uint32]bool{}
		for _, d := range docs {
			reached[d] = true
		}
		require.True(t, slices.IsSorted(docs))
		gains := map[uint32]float64{}
		for _, s := range r.prober.scored(r.reached) {
			gains[s.Doc] = float64(s.Score)
		}
		require.Len(t, gains, n)

		p, positive := &r.prober, []int{0, 1, 3, 5} // weights
		require.Len(t, p.weights, len(positive))
		var height float64
		for i := range positive {
			height += float64(p.best[i*p.n+p.n/2].Score-p.floors[i]) / float64(len(positive))
		}
		require.LessOrEqual(t, p.unit*gainSum, float64(unseenGap+2)*6) // of six query tokens: units are small
		seen, cut := 0, 0
		for d := range snap.State().Docs {
			chunk, doc, _ := snap.Locate(d)
			ch, err := snap.Chunk(chunk, storage.Codes)
			require.NoError(t, err)
			var gain float64
			found := false
			for i, token := range positive {
				best := math.Inf(-1)
				for _, c := range p.best[i*p.n : (i+1)*p.n] {
					for at := ch.Offsets[doc]; at < ch.Offsets[doc+1]; at++ {
						if ch.Code(int(at)) == c.Centroid {
							best = max(best, float64(c.Score))
						}
					}
				}
				if !math.IsInf(best, -1) {
					found = true
					gain += float64(weights[token]) * (best - float64(p.floors[i]) + unseenGap*height)
				}
			}
			require.Equal(t, found && inSet(live, d), reached[d], "document %d, %d probes", d, probes)
			if reached[d] {
				seen++
				// Each of its parts is rounded down to a unit.
				require.InDelta(t, gain, gains[d], float64(len(positive))*p.unit+1e-6*gain, "document %d, %d probes", d, probes)
			}
		}
		require.Equal(t, n, seen)

		r.plan.approx = max(n/3, 1)
		kept := map[uint32]bool{}
		docs = r.cutReached(r.reached)
		require.Len(t, docs, r.plan.approx)
		require.True(t, slices.IsSorted(docs))
		worst := math.Inf(1)
		for _, d := range docs {
			kept[d] = true
			worst = min(worst, gains[d])
		}
		for _, s := range r.prober.scored(r.reached) {
			if !kept[s.Doc] {
				cut++
				require.LessOrEqual(t, float64(s.Score), worst, "document %d was cut", s.Doc)
			}
		}
		require.Equal(t, n-r.plan.approx, cut)
	}
}
