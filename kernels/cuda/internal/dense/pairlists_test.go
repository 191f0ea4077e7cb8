package dense

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// manyPairs is more than all blocks of dense_lists hold at a time.
const manyPairs = listBlocks*listThreads + 3000

// Lists in one launch and in several, of one to three digits; most pairs of one item, at most one
// pair an item, and pairs of items that are not there.
func testPairLists(t *testing.T, c *card) {
	rng := maxsimtest.Rand(95)
	for _, x := range []struct {
		pairs int
		items [2]int // 0: the side is not needed
		heavy float64
	}{
		{pairs: 1, items: [2]int{1, 1}}, {pairs: 1000, items: [2]int{255, 256}}, {pairs: 1025, items: [2]int{3, 0}},
		{pairs: listSingleBlock, items: [2]int{1, listSingleBlock}}, {pairs: listSingleBlock, items: [2]int{300, 5}, heavy: 0.9},
		{pairs: listSingleBlock + 1, items: [2]int{1, listSingleBlock}}, {pairs: 70, items: [2]int{2, 1 << 16}},
		{pairs: 900, items: [2]int{0, 70_000}}, {pairs: manyPairs, items: [2]int{1, 70_000}},
		{pairs: manyPairs, items: [2]int{1000, 300}, heavy: 0.95}, {pairs: 1_000_000, items: [2]int{1, 1000}},
	} {
		t.Run(fmt.Sprintf("%+v", x), func(t *testing.T) {
			c.used = runtime.Arena{}
			var place pairListLayout
			var room runtime.Arena
			var items [2][]int32
			for i, n := range x.items {
				if items[i] = randomItems(rng, x.pairs, n, x.heavy); n > 0 {
					place.reserve(&room, i, &Batch{Items: n}, x.pairs)
				}
			}
			list := &PairList{Queries: bring(c, items[0], 0), Documents: bring(c, items[1], 0)}
			base := driver.Ptr(c.room(int(room.Size), 0))
			require.NoError(t, c.d.onStream(0, func() error { return place.run(c.d.rt, base, list, x.pairs) }))
			for i, n := range x.items {
				if n == 0 {
					continue
				}
				first := get[uint32](c, uint64(base.Add(place.first[i])), n+1)
				pairs := get[uint32](c, uint64(base.Add(place.pairs[i])), x.pairs)
				wantFirst, want := sortedPairs(items[i], n)
				require.True(t, slices.Equal(wantFirst, first), "first of side %d", i)
				require.True(t, slices.Equal(want, pairs[:len(want)]), "pairs of side %d", i)
			}
		})
	}
}

// randomItems is an item for each pair, some of them beyond the items; the share heavy has one item.
func randomItems(rng *rand.Rand, pairs, items int, heavy float64) []int32 {
	x := make([]int32, pairs)
	for i := range x {
		if x[i] = int32(rng.IntN(items+2)) - 1; rng.Float64() < heavy {
			x[i] = int32(items / 2)
		}
	}
	return x
}

// sortedPairs is what the lists have to be.
func sortedPairs(item []int32, items int) (first, pairs []uint32) {
	lists := make([][]uint32, items)
	for i, x := range item {
		if x >= 0 && int(x) < items {
			lists[x] = append(lists[x], uint32(i))
		}
	}
	for _, list := range lists {
		first, pairs = append(first, uint32(len(pairs))), append(pairs, list...)
	}
	return append(first, uint32(len(pairs))), pairs
}

func TestPairLists(t *testing.T) {
	testPairLists(t, fakeCard(t, 1<<25))
}

func TestGPUPairLists(t *testing.T) {
	testPairLists(t, gpuCard(t, 1<<25))
}

// The room is bounded by how many pairs there are.
func TestPairListsRoom(t *testing.T) {
	for _, n := range []int{1, listThreads, listSingleBlock + 1, manyPairs, 1 << 27} {
		var place pairListLayout
		var room runtime.Arena
		place.reserve(&room, 0, &Batch{Items: 1}, n)
		require.LessOrEqual(t, room.Size, int64(9*n+4096), n)
	}
}
