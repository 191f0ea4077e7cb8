package compressed

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// TestAlike: multiples of a vector, and vectors that are one in many components, count;
// unrelated ones do not.
func TestAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, mode := range []int{2, tableMode, halfMode + 2} {
		for _, dim := range []int{64, 128, 100} {
			for _, n := range []int{1, 5, 32, 33, 70} {
				s := &shape{dim: dim, mode: mode}
				groups := (n + columns - 1) / columns
				alike := func(vectors []float32) []float32 {
					raw := make([]byte, 4*groups*columns)
					for i := range raw {
						raw[i] = 0xff
					}
					s.writeAlike(raw, vectors, groups)
					got := make([]float32, groups*columns)
					for i := range got {
						got[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
					}
					require.Equal(t, make([]float32, len(got)-n), got[n:])
					return got[:n]
				}
				one := kerneltest.UnitVectors(rng, 1, dim)
				largest := 0
				for j, v := range one {
					if v*v > one[largest]*one[largest] {
						largest = j
					}
				}
				var multiples, moved []float32
				for i := range n {
					j := rng.IntN(dim)
					if j == largest {
						j = (j + 1) % dim
					}
					for at, v := range one {
						multiples = append(multiples, v*float32([]float64{1, -1, 4, 0.1}[i%4]))
						if at == j {
							v *= rng.Float32()
						}
						moved = append(moved, v)
					}
				}
				for _, v := range alike(multiples) {
					require.InDelta(t, n, v, 0.01*float64(n), "mode %d", mode)
				}
				for _, v := range alike(moved) {
					require.InDelta(t, n, v, 0.15*float64(n), "mode %d", mode)
				}
				sum := float32(0)
				for _, v := range alike(kerneltest.UnitVectors(rng, n, dim)) {
					sum += v
				}
				require.Less(t, sum, 1.2*float32(n), "mode %d", mode)
			}
		}
	}
}

// The constants of this package are those of the header.
func TestConstantsAreThoseOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../../src/plaid.cuh")
	require.NoError(t, err)
	for name, want := range map[string]int{"kTile": tileTokens, "kColumns": columns, "kScanThreads": scanThreads, "kWideThreads": wideThreads} {
		require.Regexp(t, fmt.Sprintf(`constexpr int %s = %d;`, name, want), string(header))
	}
}

// Keys are sorted whatever they are: spread, the same, or all but one close together.
func TestSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		keys := make([]uint64, rapid.IntRange(0, 600).Draw(t, "n"))
		spread := rapid.IntRange(0, 64).Draw(t, "bits")
		for i := range keys {
			if keys[i] = 1<<63 + rng.Uint64()>>(64-spread); rng.IntN(200) == 0 {
				keys[i] = rng.Uint64()
			}
		}
		want := slices.Sorted(slices.Values(keys))
		require.Equal(t, want, append([]uint64(nil), sortKeys(keys, make([]uint64, len(keys)))...))
	})
}

func BenchmarkOrder(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([]uint64, 1<<20) // no two in the same order
	for i := range all {
		all[i] = uint64(math.Float32bits(float32(20+rng.ExpFloat64())))<<32 | uint64(i)
	}
	const n = 152
	room, at := make([]uint64, n), 0
	for b.Loop() {
		if at += n; at+n > len(all) {
			at = 0
		}
		sortKeys(all[at:at+n], room)
	}
}

// As many groups are side by side as take the least time, where the device has such
// scans and there is room for whole sets.
func TestSideBySide(t *testing.T) {
	half, bytes := &shape{mode: halfMode + 2}, &shape{mode: 2}
	for groups, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 2, 6: 2, 7: 4, 8: 4, 9: 2, 10: 2, 11: 4, 32: 4, 299: 4, 512: 4} {
		require.Equal(t, want, half.chooseSideBySide(groups, maxBatchGroups), "%d groups", groups)
		require.Equal(t, 1, bytes.chooseSideBySide(groups, maxBatchGroups), "%d groups", groups)
		side := half.chooseSideBySide(groups, groups)
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
