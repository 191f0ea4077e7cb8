package tier

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/fenced"
)

// TestTablesAreFull: every tier has every loop, but for those that it may lack,
// and says where each stage's come from.
func TestTablesAreFull(t *testing.T) {
	optional := map[string]bool{"Tiles": true, "MaxLevels": true, "WidenBF16": true, "WidenF16": true, "Filter": true, "Rounded": true, "FineTiles": true, "Screen": true}
	require.Equal(t, "generic", Available[0].Name)
	var names []string
	for _, tier := range Available {
		require.NotContains(t, names, tier.Name)
		names = append(names, tier.Name)
		requireLoops(t, tier.Name, tier.Tokens, optional)
		if tier.Tokens.Filter != nil {
			requireLoops(t, tier.Name, *tier.Tokens.Filter, nil)
		}
		for i, uses := range tier.Tokens.Uses {
			of, _, _ := strings.Cut(uses, " ")
			require.Contains(t, names, of, "%s, %s: of no tier up to this one", tier.Name, StageNames[i])
		}
	}
}

func requireLoops(t *testing.T, tier string, table any, optional map[string]bool) {
	v := reflect.ValueOf(table)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Func && !optional[v.Type().Field(i).Name] {
			require.False(t, f.IsNil(), "%s has no %s", tier, v.Type().Field(i).Name)
		}
	}
}

// TestFilter: the loops of the nearest centroid of every tier, with arrays at both ends of
// pages that are fenced.
func TestFilter(t *testing.T) {
	for _, tier := range Available {
		if l := tier.Tokens.Filter; l != nil {
			room := 6 // vectors beyond k for which hits have room
			if tier.Name == "amx" {
				room = 16
			}
			t.Run(tier.Name, func(t *testing.T) { testFilterLoops(t, l, room) })
		}
	}
}

func testFilterLoops(t *testing.T, l *Filter, room int) {
	t.Run("Range", func(t *testing.T) { atDims(t, l, testRange) })
	t.Run("Levels", func(t *testing.T) { atDims(t, l, testLevels) })
	t.Run("Pack", func(t *testing.T) { atDims(t, l, testPack) })
	rng := rand.New(rand.NewPCG(5, 1))
	for _, stride := range []int{16, 32, 48, 64, 80, 112, 128, 256, 1024} {
		for _, k := range []int{6, 7, 8, 9, 11, 12, 15, 16, 17, 31, 50, 100, 252} {
			if stride*k > 1<<15 {
				continue
			}
			for _, extreme := range []bool{false, true} {
				t.Run(fmt.Sprintf("Filter/stride=%d/K=%d/extreme=%v", stride, k, extreme), func(t *testing.T) {
					testFilter(t, l, rng, stride, k, room, extreme)
				})
			}
		}
	}
}

// atDims runs a test over numbers of dimensions, at both ends of pages.
func atDims(t *testing.T, l *Filter, run func(t *testing.T, l *Filter, rng *rand.Rand, dim int, atEnd bool)) {
	rng := rand.New(rand.NewPCG(4, 1))
	for _, dim := range []int{1, 2, 3, 4, 5, 15, 16, 17, 19, 32, 63, 100, 128} {
		for _, atEnd := range []bool{false, true} {
			t.Run(fmt.Sprintf("d=%d/end=%v", dim, atEnd), func(t *testing.T) { run(t, l, rng, dim, atEnd) })
		}
	}
}

func normal(t *testing.T, rng *rand.Rand, n int, atEnd bool) []float32 {
	x := fenced.SliceAt[float32](t, n, atEnd)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func testRange(t *testing.T, l *Filter, rng *rand.Rand, dim int, atEnd bool) {
	for k := range 6 {
		rows := normal(t, rng, k*dim, atEnd)
		lo, hi := normal(t, rng, dim, atEnd), normal(t, rng, dim, atEnd)
		wantLo, wantHi := append([]float32{}, lo...), append([]float32{}, hi...)
		for i, v := range rows {
			wantLo[i%dim], wantHi[i%dim] = min(wantLo[i%dim], v), max(wantHi[i%dim], v)
		}
		l.Range(lo, hi, rows)
		require.Equal(t, wantLo, append([]float32{}, lo...))
		require.Equal(t, wantHi, append([]float32{}, hi...))
	}
}

func testLevels(t *testing.T, l *Filter, rng *rand.Rand, dim int, atEnd bool) {
	const k = 7
	rows := normal(t, rng, k*dim, atEnd)
	lo, step, inverse := fenced.SliceAt[float32](t, dim, atEnd), fenced.SliceAt[float32](t, dim, atEnd), fenced.SliceAt[float32](t, dim, atEnd)
	for j := range dim { // some values beyond both ends
		lo[j], step[j] = -2, 4/l.MaxLevel
		inverse[j] = 1 / step[j]
	}
	stride := (dim + 15) &^ 15
	dst := fenced.SliceAt[byte](t, k*stride, atEnd)
	for i := range dst {
		dst[i] = 0xaa
	}
	most := [4]float32{1e-3, 1e-3, 1e-3, 1000}
	want := [4]float64{1e-3, 1e-3, 1e-3, 1000}
	levels := make([]byte, k*stride)
	for c := range k {
		var sums [3]float64
		for j := range dim {
			v := rows[c*dim+j]
			level := min(max(int32(float32((v-lo[j])*inverse[j])+0.5), 0), int32(l.MaxLevel))
			levels[c*stride+j] = byte(level)
			e := float64(v) - float64(lo[j]) - float64(step[j])*float64(level)
			middle := float64(level) - float64(l.MaxLevel)/2
			sums[0] += e * e
			sums[1] += float64(v) * float64(v)
			sums[2] += middle * middle
		}
		for i, s := range sums {
			want[i] = max(want[i], s)
		}
		want[3] += sums[1]
	}
	l.Levels(dst, stride, rows, lo, step, inverse, &most)
	require.Equal(t, levels, append([]byte{}, dst...))
	for i := range want {
		require.InEpsilon(t, want[i], most[i], 1e-4, "%d", i)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		i := rng.IntN(len(rows))
		v := rows[i]
		rows[i], most = float32(bad), [4]float32{}
		l.Levels(dst, stride, rows, lo, step, inverse, &most)
		require.NotZero(t, most[3]-most[3], "%v has to show", bad)
		rows[i] = v
	}
}

func testPack(t *testing.T, l *Filter, rng *rand.Rand, dim int, atEnd bool) {
	x, step := normal(t, rng, dim, atEnd), normal(t, rng, dim, atEnd)
	groups := (dim + 15) / 16 * 4
	dst := fenced.SliceAt[byte](t, (groups-1)*256+4, atEnd)
	for i := range dst {
		dst[i] = 0xaa
	}
	var largest float32
	for j, v := range x {
		largest = max(largest, float32(math.Abs(float64(v*step[j]))))
	}
	wantUnit, toInt := largest/127, 127/largest
	want := make([]byte, len(dst))
	for i := range want {
		if want[i] = 0xaa; i%256 < 4 {
			want[i] = 0
		}
	}
	var wantErr, wantNorm float64
	for j, v := range x {
		n := math.RoundToEven(float64(float32(v*step[j]) * toInt))
		want[j/4*256+j%4] = byte(int8(n))
		e := float64(v)*float64(step[j]) - float64(wantUnit)*n
		wantErr += e * e
		wantNorm += float64(v) * float64(v)
	}
	unit, err, norm := l.Pack(&dst[0], x, step)
	require.Equal(t, wantUnit, unit)
	require.Equal(t, want, append([]byte{}, dst...))
	require.InDelta(t, wantErr, err, wantErr*1e-3+1e-4*float64(unit*unit))
	require.InEpsilon(t, wantNorm, norm, 1e-5)

	clear(x)
	unit, _, norm = l.Pack(&dst[0], x, step)
	require.Zero(t, unit)
	require.Zero(t, norm)
}

func testFilter(t *testing.T, l *Filter, rng *rand.Rand, stride, k, room int, extreme bool) {
	atEnd := rng.IntN(2) == 0
	levels, x := fenced.SliceAt[byte](t, k*stride, atEnd), fenced.SliceAt[byte](t, stride*64, atEnd)
	for i := range levels {
		if levels[i] = byte(rng.IntN(int(l.MaxLevel) + 1)); extreme {
			levels[i] = byte(l.MaxLevel)
		}
	}
	for i := range x {
		if x[i] = byte(int8(rng.IntN(255) - 127)); extreme {
			x[i] = []byte{127, 0x81}[i/4%2] // every other row
		}
	}
	products := make([][64]int32, k)
	for c := range products {
		for r := range 64 {
			for j := range stride {
				products[c][r] += int32(int8(x[j/4*256+4*r+j%4])) * int32(levels[c*stride+j])
			}
		}
	}
	var best, margin, want [64]int32
	for r := range best {
		best[r], margin[r] = math.MinInt32/2, int32(rng.IntN(1000*stride/16))
		if r%7 == 3 {
			best[r] = products[k/2][r] + margin[r] // to be reached, just
		}
	}
	best[5], margin[5] = math.MaxInt32, 0 // not in use
	started := best
	for r := range want {
		want[r] = best[r]
		for c := range products {
			want[r] = max(want[r], products[c][r])
		}
	}
	const first = 70000
	hits := fenced.SliceAt[[18]int32](t, 4*(k+room), atEnd)
	size := l.Filter(hits, levels, stride, &x[0], first, &best, &margin, k)
	require.Zero(t, size%72)
	require.Equal(t, want, best)
	type pair struct{ row, centroid int }
	seen := map[pair]bool{}
	for _, h := range hits[:size/72] {
		c, group := int(h[16])-first, int(h[17]>>16)
		require.Equal(t, products[c][16*group:16*group+16], h[:16])
		require.NotZero(t, h[17]&0xffff)
		for i := range 16 {
			row := 16*group + i
			if h[17]>>i&1 == 1 {
				require.GreaterOrEqual(t, products[c][row], started[row]-margin[row])
				seen[pair{row, c}] = true
			}
		}
	}
	for r := range 64 {
		for c := range products {
			if products[c][r] >= want[r]-margin[r] {
				require.True(t, seen[pair{r, c}], "row %d, centroid %d", r, c)
			}
		}
		require.False(t, r == 5 && seen[pair{r, 0}])
	}
	require.Equal(t, [18]int32{}, hits[size/72], "nothing beyond the size")
}
