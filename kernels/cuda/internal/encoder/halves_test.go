package encoder

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// halvesOf are the vectors of some ids of a batch, of all that Encode gave, rounded.
func halvesOf(t testing.TB, all []float32, dim int, kept []int32) []byte {
	t.Helper()
	b := []byte{}
	for _, id := range kept {
		for _, v := range all[int(id)*dim : int(id+1)*dim] {
			b = binary.LittleEndian.AppendUint16(b, kernels.F16FromF32(v))
		}
	}
	return b
}

// keptOf draws a share of n ids.
func keptOf(r *rand.Rand, n int, share float64) []int32 {
	kept := []int32{}
	for i := range n {
		if r.Float64() < share {
			kept = append(kept, int32(i))
		}
	}
	return kept
}

// TestHalves: halves of the ids that are kept are those of the vectors that all ids get, to
// the bit, in passes of few tokens and of many, alone and in the company of other calls.
func TestHalves(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	all, layers := []kind{kinds()[0], kinds()[1], kinds()[2], kinds()[4]}, 2
	switch {
	case effort.Brief():
		all = all[:1]
	case !effort.Long():
		all, layers = []kind{kinds()[4]}, 1
	}
	for _, k := range all {
		w := k.weights(31)
		w.Layers, k.config.Layers = w.Layers[:layers], k.config.Layers[:layers]
		for _, m := range []*opened{openModel(t, k.config, w, transformer.Options{}, true), openModel(t, k.config, w, transformer.Options{Tokens: 200}, false)} {
			dim := m.About().Dim
			var requests []*request
			var want [][]float32
			for i := range 9 {
				b := batchOf(textOf(r, 1+r.IntN(100)), nil, textOf(r, 1), textOf(r, r.IntN(longest)))
				x := &request{model: m.model, batch: &b, halves: true, kept: keptOf(r, len(b.IDs), []float64{.8, 1, 0, .01}[i%4])}
				if i == 8 { // texts of which nothing is kept, and then some
					x.kept = []int32{int32(b.Offsets[3])}
				}
				x.halvesDst = make([]byte, 2*dim*len(x.kept))
				requests, want = append(requests, x), append(want, encodeOn(t, m, b))
				got := make([]byte, len(x.halvesDst))
				require.NoError(t, m.EncodeHalves(t.Context(), got, b, x.kept))
				require.Equal(t, halvesOf(t, want[i], dim, x.kept), got, "%s, call %d", k.name, i)
				if i%3 == 1 { // others want all of it
					x.halves, x.kept, x.halvesDst, x.dst = false, nil, nil, make([]float32, len(want[i]))
				}
			}
			require.NoError(t, doAll(t, m, requests))
			for i, x := range requests {
				if x.halves {
					require.Equal(t, halvesOf(t, want[i], dim, x.kept), x.halvesDst, "%s, request %d", k.name, i)
				} else {
					require.Equal(t, want[i], x.dst, "%s, request %d", k.name, i)
				}
			}
		}
	}
}

// TestHalvesThatCannotBe: ids that are none, and room for another number of them.
func TestHalvesThatCannotBe(t *testing.T) {
	k := kinds()[0]
	m := openModel(t, k.config, k.weights(33), transformer.Options{}, false)
	b := batchOf([]int32{1, 2, 3})
	dim := m.About().Dim
	for _, kept := range [][]int32{{3}, {-1}, {0, 0}, {2, 1}, {0}} {
		room := 2 * dim * len(kept)
		if len(kept) == 1 && kept[0] == 0 {
			room++
		}
		require.ErrorIs(t, m.EncodeHalves(t.Context(), make([]byte, room), b, kept), transformer.ErrBatch, "%v", kept)
	}
	require.ErrorIs(t, m.EncodeHalves(t.Context(), make([]byte, 2*dim), batchOf([]int32{words}), []int32{0}), transformer.ErrBatch)
	require.NoError(t, m.EncodeHalves(t.Context(), nil, b, nil))
}

// TestHalvesNotFinite: a text of which a vector is kept that is none fails its own call; what
// shares its pass is computed again, and has the same bits.
func TestHalvesNotFinite(t *testing.T) {
	m, good := openNotFinite(t, 35)
	dim := m.About().Dim
	bad := slices.Clone(good)
	bad[30] = 7
	kept := []int32{5, 6, 29, 30, 39, 45, 60}
	want := make([]byte, 2*dim*len(kept))
	require.NoError(t, m.EncodeHalves(t.Context(), want, batchOf(good, good), kept))
	var requests []*request
	for i := range 5 {
		b := batchOf(good, good)
		switch i {
		case 1:
			b = batchOf(good, bad)
		case 3: // of the bad text nothing is kept
			b = batchOf(good, good, bad)
		}
		requests = append(requests, &request{model: m.model, batch: &b, halves: true, kept: kept, halvesDst: make([]byte, len(want))})
	}
	require.ErrorIs(t, doAll(t, m, requests), transformer.ErrNotFinite)
	for i, x := range requests {
		require.Equal(t, i == 1, x.failed, i)
		if i != 1 {
			require.Equal(t, want, x.halvesDst, i)
		}
	}
	b := batchOf(good, bad)
	require.ErrorContains(t, m.EncodeHalves(t.Context(), make([]byte, len(want)), b, kept), "token 45 of the batch")
}
