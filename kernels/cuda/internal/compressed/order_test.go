package compressed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

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
		require.Equal(t, want, append([]uint64(nil), sorted(keys, make([]uint64, len(keys)))...))
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
		sorted(all[at:at+n], room)
	}
}
