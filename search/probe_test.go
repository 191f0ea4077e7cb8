package search

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/storage"
)

// Random lists of several blocks, with any allowance, cut to any numbers, give the documents
// and gains of a picture that is made without blocks and stamps.
func TestReadListsModel(t *testing.T) {
	r := &run{ctx: context.Background()} // its buffers are those of the run before
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		docs := uint32(rapid.SampledFrom([]int{1, 63, 64, 65, 900, docBlock - 1, docBlock, docBlock + 1, 2*docBlock + 70}).Draw(t, "docs"))
		tokens := rapid.SampledFrom([]int{1, 3, stampCount, stampCount + 1, 2*stampCount + 2}).Draw(t, "tokens")
		base := uint32(rapid.IntRange(0, 3).Draw(t, "base")) * docBlock
		allowed, share := make([]uint64, (docs+63)/64), rapid.SampledFrom([]float64{0, 0.01, 0.5, 1}).Draw(t, "share")
		for d := range docs {
			if share == 1 || rng.Float64() < share {
				allowed[d/64] |= 1 << (d % 64)
			}
		}
		p := &r.prober
		p.cursors = p.cursors[:0]
		r.reached, r.stats = r.reached[:0], Stats{}
		p.reset()
		gains := map[uint32]uint32{}
		for token := range tokens {
			seen := map[uint32]bool{}
			for list := range rng.IntN(4) {
				bm := roaring.New()
				switch lo := rng.Uint32N(docs); rng.IntN(4) {
				case 0: // bitmaps and runs
					bm.AddRange(uint64(lo), uint64(min(docs, lo+rng.Uint32N(uint32(6000/tokens))+1)))
					for range rng.IntN(3) * 3000 / tokens {
						bm.Add(rng.Uint32N(docs))
					}
				case 1: // documents that others have too
					for range rng.IntN(20) {
						bm.Add(rng.Uint32N(docs) % 50)
					}
				default:
					for range rng.IntN(40) {
						bm.Add(rng.Uint32N(docs))
					}
				}
				if bm.IsEmpty() {
					continue
				}
				if rng.IntN(2) == 0 {
					bm.RunOptimize()
				}
				b, err := bm.ToBytes()
				require.NoError(t, err)
				gain := rng.Uint32N(uint32(gainSum/tokens)) >> (rng.IntN(3) * 4)
				c := cursor{token: uint32(token), gain: gain, firstUse: list == 0}
				c.PostingCursor, err = storage.PostingList(b).Cursor()
				require.NoError(t, err)
				p.cursors = append(p.cursors, c)
				for it := bm.Iterator(); it.HasNext(); {
					if d := it.Next(); !seen[d] {
						seen[d] = true
						gains[d] += gain
					}
				}
			}
		}
		want := []topk.Scored{} // of all that are allowed
		for d, g := range gains {
			if hasBit(allowed, d) {
				want = append(want, topk.Scored{Doc: base + d, Score: float32(g)})
			}
		}
		slices.SortFunc(want, topk.Order)
		n := len(want)
		r.plan.approxBudget = rapid.SampledFrom([]int{1, max(n/3, 1), max(n, 1), math.MaxInt}).Draw(t, "approx")
		require.NoError(t, r.readLists("x", docs, base, allowed))
		require.Equal(t, n, p.total)
		require.Zero(t, slices.Max(p.gains))

		p.gainUnit = 1
		got := p.gainScores(r.reached)
		require.True(t, slices.IsSortedFunc(got, func(a, b topk.Scored) int { return int(a.Doc) - int(b.Doc) }))
		slices.SortFunc(got, topk.Order)
		kept := min(n, r.plan.approxBudget)
		require.Equal(t, want[:kept], got[:kept])
		for _, s := range got[kept:] {
			require.EqualValues(t, gains[s.Doc-base], s.Score)
		}
		// One cut after the other gives the next ones.
		for from := 0; from < kept; {
			to := from + 1 + rng.IntN(kept-from)
			list := []uint32{}
			for _, x := range want[from:to] {
				list = append(list, x.Doc)
			}
			slices.Sort(list)
			require.Equal(t, list, slices.Clone(r.selectReached(to)))
			from = to
		}
	})
}
