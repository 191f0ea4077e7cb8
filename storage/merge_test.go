package storage

import (
	"math"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func itself(n uint64) uint64 { return n }

func TestAbsorbs(t *testing.T) {
	p := MergePolicy{Largest: 100, Full: 50}
	for _, c := range []struct {
		gathered, before uint64
		want             bool
	}{
		{1, 1, true}, {1, 2, true}, {1, 3, false}, {2, 3, true}, {2, 4, true}, {2, 5, false},
		{0, 0, true}, {0, 1, false},
		{49, 98, true}, {49, 99, false}, {50, 1, false}, // it is full
	} {
		require.Equal(t, c.want, p.Absorbs(c.gathered, c.before), "%+v", c)
	}
	p.Full = 0
	require.True(t, p.Absorbs(50, 100))
	require.True(t, p.Absorbs(1<<40, 100))
	require.False(t, p.Absorbs(1<<40, 101), "it is left alone")
	p.Largest = math.MaxUint64
	require.False(t, p.Absorbs(math.MaxUint64/2, math.MaxUint64), "twice as much is beyond uint64")
	require.True(t, p.Absorbs(math.MaxUint64/2+1, math.MaxUint64))
}

func TestKeepParts(t *testing.T) {
	p := MergePolicy{Largest: 64}
	for _, c := range []struct {
		parts []uint64
		size  uint64
		keep  int
	}{
		{nil, 1, 0},
		{[]uint64{7, 3, 1}, 1, 0},     // 1+1 takes 3, 5 takes 7
		{[]uint64{11, 3, 1}, 1, 1},    // 5 does not take 11
		{[]uint64{1, 3}, 1, 2},        // nothing is looked at behind one that stays
		{[]uint64{65, 40, 20}, 10, 1}, // 70 would take 65, which is too large
	} {
		require.Equal(t, c.keep, UnmergedCount(p, c.parts, itself, c.size), "%+v", c)
	}
	p.Full = 5
	require.Equal(t, 1, UnmergedCount(p, []uint64{7, 3, 1}, itself, 1), "it is full with 5")
}

// However parts come, they stay few, and little is written again.
func TestPartsStayFew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := MergePolicy{Largest: rapid.SampledFrom([]uint64{30, 1000, math.MaxUint64}).Draw(t, "largest")}
		var parts []uint64
		total, written, n := uint64(0), uint64(0), rapid.IntRange(1, 300).Draw(t, "additions")
		for range n {
			size := rapid.Uint64Range(1, rapid.SampledFrom([]uint64{1, 9, 200}).Draw(t, "up to")).Draw(t, "size")
			total += size
			keep := UnmergedCount(p, parts, itself, size)
			for _, merged := range parts[keep:] {
				size += merged
			}
			parts = append(parts[:keep:keep], size)
			written += size

			small, sum := 0, uint64(0)
			for i, part := range parts {
				sum += part
				if part > p.Largest {
					continue
				}
				small++
				if i+1 < len(parts) {
					require.Greater(t, part, 2*parts[i+1], "%v", parts)
				}
			}
			require.Equal(t, total, sum)
			require.LessOrEqual(t, small, bits.Len64(min(total, p.Largest)), "%v", parts)
		}
		// Each time it is written again, it is in a part at least half as large again.
		times := 1 + math.Ceil(math.Log(float64(total))/math.Log(1.5))
		require.LessOrEqual(t, float64(written), float64(total)*times)
	})
}
