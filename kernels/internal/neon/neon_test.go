//go:build arm64 && !purego

package neon

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/fenced"
)

// TestMaxFineKeeps: only a larger product replaces the best, which matters for
// zeros of both signs and for NaN, and only tokens of the range count.
func TestMaxFineKeeps(t *testing.T) {
	nan, inf, negative := float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))
	for _, c := range []struct{ best, score, want float32 }{
		{0, negative, 0}, {negative, 0, negative}, {1, nan, 1}, {-inf, nan, -inf},
		{nan, 1, nan}, {-1, inf, inf}, {3, 3, 3}, {2, -inf, 2}, {-inf, -2, -2},
	} {
		for n := 1; n <= 16; n++ {
			scores := fenced.Slice[float32](t, n)
			var best, mid, unit [16]float32
			for i := range n {
				scores[i], best[i] = c.score, c.best
			}
			for i := range mid {
				mid[i] = negative // which does not change the sign of a score of 0
			}
			row := [8]uint64{}
			for i := range row {
				row[i] = 0x7fffffff_7fffffff // −1
			}
			tables := make([][256][8]uint64, 1)
			tables[0][9] = row
			MaxFine([][16]float32{best}, [][2]uint32{{0, 0}}, tables, nil, nil, 2, nil, nil, nil, 16, n, &mid, &unit)
			out := [][16]float32{best}
			MaxFine(out, [][2]uint32{{1, 2}}, tables, scores, []byte{7, 7, 0, 0}, 2, []byte{1, 9}, []byte{9, 9, 1, 0}, nil, 16, n, &mid, &unit)
			for i := range n {
				require.Equal(t, math.Float32bits(c.want), math.Float32bits(out[0][i]), "%v and %v, lane %d of %d", c.best, c.score, i, n)
			}
		}
	}
}

// TestBytesLimits: values beyond both ends of int32 included.
func TestBytesLimits(t *testing.T) {
	values := []float32{-3e9, -1, -0.6, -0.4, 0.4, 0.6, 126.4, 126.6, 127.6, 1000, 3e9}
	want := []byte{0, 0, 0, 0, 0, 1, 126, 127, 127, 127, 127}
	var mul, add [32]float32
	for i := range values {
		mul[i], add[i] = 1, 0.5
	}
	add[0], add[10] = 0, 0
	add[6], add[7] = 0.5, 0.5
	dst := make([][4]uint64, 1)
	Bytes(dst, values, 16, len(values), &mul, &add)
	for i, b := range want {
		require.Equal(t, b, byte(dst[0][i/8]>>(i%8*8)), "%v", values[i])
	}
}

// TestWidenF16Special: infinities stay, NaN stays NaN.
func TestWidenF16Special(t *testing.T) {
	src := []byte{0, 0x7c, 0, 0xfc, 0, 0x7e, 1, 0x7c, 0, 0x80}
	dst := make([]float32, 5)
	WidenF16(dst, src)
	require.True(t, math.IsInf(float64(dst[0]), 1))
	require.True(t, math.IsInf(float64(dst[1]), -1))
	require.True(t, dst[2] != dst[2] && dst[3] != dst[3])
	require.Equal(t, uint32(1<<31), math.Float32bits(dst[4]))
}
