package compressed

import (
	"errors"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// history is snapshots of a lineage as an index makes them: documents come, are
// deleted, lose their tokens, and chunks are cut anew.
type history struct {
	cs      *kerneltest.Case
	rng     *rand.Rand
	docs    int          // of the newest
	deleted map[int]bool // true: without tokens
}

func (h *history) change() {
	switch h.rng.IntN(3) {
	case 0:
		h.docs = min(h.docs+1+h.rng.IntN(15), h.cs.Chunk.Docs())
	case 1:
		share := 2 + h.rng.IntN(8)
		for d := range h.docs {
			if _, gone := h.deleted[d]; !gone && h.rng.IntN(share) == 0 {
				h.deleted[d] = false
			}
		}
	default: // a merge of the last segments, or of all
		for d := h.rng.IntN(h.docs+1) * h.rng.IntN(2); d < h.docs; d++ {
			if _, gone := h.deleted[d]; gone {
				h.deleted[d] = true
			}
		}
	}
}

// snapshot is the newest one, cut at random.
func (h *history) snapshot() *corpus {
	cuts := []int{0, h.docs}
	for range h.rng.IntN(5) {
		cuts = append(cuts, h.rng.IntN(h.docs+1))
	}
	sort.Ints(cuts)
	all, row := h.cs.Chunk, h.cs.Codec.RowBytes()
	var chunks []*kernels.Chunk
	for i := range len(cuts) - 1 {
		ch := &kernels.Chunk{Offsets: []uint32{0}, CodeBytes: all.CodeBytes}
		for d := cuts[i]; d < cuts[i+1]; d++ {
			lo, hi := int(all.Offsets[d]), int(all.Offsets[d+1])
			if h.deleted[d] {
				hi = lo
			}
			ch.Codes = append(ch.Codes, all.Codes[lo*ch.CodeBytes:hi*ch.CodeBytes]...)
			ch.Factors = append(ch.Factors, all.Factors[2*lo:2*hi]...)
			ch.Residuals = append(ch.Residuals, all.Residuals[lo*row:hi*row]...)
			ch.Offsets = append(ch.Offsets, ch.Offsets[len(ch.Offsets)-1]+uint32(hi-lo))
		}
		chunks = append(chunks, ch)
	}
	c := newCorpus(h.cs.Codec, chunks...)
	for d := range h.deleted {
		c.drop(uint32(d))
	}
	return c
}

// An attachment answers for every snapshot of a lineage, in any order, whether
// memory suffices to grow or not.
func TestSnapshotsOfALineage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f, _ := newFake()
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, K: 20, Lengths: lengths(rng, 120, 50), Seed: rng.Uint64()})
		h := &history{cs: cs, rng: rng, docs: 1 + rng.IntN(20), deleted: map[int]bool{}}
		shortOnce := false
		f.Fail = func(op string) driver.Result {
			if op == "cuMemAlloc" && shortOnce {
				shortOnce = false
				return driver.OutOfMemory
			}
			return driver.Success
		}
		d, err := runtimetest.Open(f.API(), runtimetest.Modules())
		require.NoError(rt, err)
		defer func() {
			require.NoError(rt, d.Close())
			runtimetest.RequireNothingOut(t, f, d)
		}()
		snaps := []*corpus{h.snapshot()}
		streamed := rapid.Bool().Draw(rt, "streamed")
		a, err := attach(ctx, d, snaps[0], kernels.AttachOptions{}, rapid.SampledFrom([]int64{1 << 10, 1 << 13}).Draw(rt, "piece"), streamed)
		require.NoError(rt, err)
		for range rapid.IntRange(1, effort.Cases(8, 25)).Draw(rt, "steps") {
			for range rng.IntN(4) {
				h.change()
			}
			snaps = append(snaps, h.snapshot())
			c := snaps[len(snaps)-1]
			if rng.IntN(4) == 0 { // a search that began before
				c = snaps[rng.IntN(len(snaps))]
			}
			q := kernels.DeviceQuery{Vectors: cs.Query(1 + rng.IntN(40)), K: []int{1, 7, 200}[rng.IntN(3)]}
			var from []uint32
			switch rng.IntN(3) {
			case 0:
				q.Probes = 20
			case 1:
				q.Docs, from = []uint32{}, []uint32{}
				for doc := range uint32(c.docs()) {
					if c.isLive(doc) && rng.IntN(2) == 0 {
						q.Docs, from = append(q.Docs, doc), append(from, doc)
					}
				}
			}
			shortOnce = rng.IntN(3) == 0
			got, err := a.Search(ctx, c, []kernels.DeviceQuery{q})
			if shortOnce = false; errors.Is(err, driver.ErrOutOfMemory) {
				got, err = a.Search(ctx, c, []kernels.DeviceQuery{q}) // memory is there again
			}
			require.NoError(rt, err)
			requireBest(rt, c, &q, got[0], from, 2e-4)
			require.Empty(rt, f.Faults())
			require.Equal(rt, !streamed, a.Plan().Resident)
		}
	})
}

// What is gone does not take memory for ever: when more than half of what is on
// the device is gone, it is uploaded anew.
func TestDeletedDocumentsLeaveTheDevice(t *testing.T) {
	f, _ := newFake()
	rng := rand.New(rand.NewPCG(3, 3))
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rng, 100, 40)})
	h := &history{cs: cs, rng: rng, docs: 90, deleted: map[int]bool{}}
	d := runtimetest.OpenFake(t, f)
	c := h.snapshot()
	a, err := attach(ctx, d, c, kernels.AttachOptions{}, pieceBytes, false)
	require.NoError(t, err)
	whole := a.Plan().Tokens
	search := func() {
		c = h.snapshot()
		q := kernels.DeviceQuery{Vectors: cs.Query(8), K: 5}
		got, err := a.Search(ctx, c, []kernels.DeviceQuery{q})
		require.NoError(t, err)
		requireBest(t, c, &q, got[0], nil, 2e-4)
	}
	for doc := range 10 {
		h.deleted[doc] = true
	}
	search()
	require.Equal(t, whole, a.Plan().Tokens)
	require.Zero(t, c.loads, "nothing is read for what is gone")
	for doc := range 80 {
		h.deleted[doc] = true
	}
	search()
	require.Less(t, a.Plan().Tokens, whole/2)
	h.docs = 100
	search()
	first, off := c.ChunkDocs(c.Chunks() - 1)
	require.Equal(t, 100, int(first)+len(off)-1)
	require.Less(t, a.Plan().Tokens, whole/2, "added documents are appended to what is left")
}
