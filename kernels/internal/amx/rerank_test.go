//go:build linux && amd64 && !purego

package amx_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/fenced"
	"github.com/plaid-ir/plaid/kernels/internal/amx"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
	"github.com/plaid-ir/plaid/kernels/internal/tiletest"
)

// TestRerank compares with plain Go, bit for bit, with arrays that end at an
// unmapped page.
func TestRerank(t *testing.T) { testShapes(t, 2, testRerank) }

// TestFine is TestRerank for level Fine.
func TestFine(t *testing.T) { testShapes(t, 3, testFine) }

func testShapes(t *testing.T, seed uint64, test func(t *testing.T, rng *rand.Rand, nbits, dim, codeBytes int, scaled bool)) {
	if !amx.Supported() {
		t.Skip("this processor or operating system lacks AMX")
	}
	rng := rand.New(rand.NewPCG(6, seed))
	for _, nbits := range []int{1, 2, 4, 8} {
		for _, dim := range []int{64, 65, 96, 100, 128, 130, 192, 256, 768} {
			for _, codeBytes := range []int{2, 4} {
				for _, scaled := range []bool{false, true} {
					name := fmt.Sprintf("n=%d/d=%d/code=%d/scaled=%v", nbits, dim, codeBytes, scaled)
					t.Run(name, func(t *testing.T) {
						for range 3 {
							test(t, rng, nbits, dim, codeBytes, scaled)
						}
					})
				}
			}
		}
	}
}

func randomBytes(t testing.TB, rng *rand.Rand, n int) []byte {
	b := fenced.Slice[byte](t, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func newRerank(t testing.TB, rng *rand.Rand, nbits, dim, codeBytes, k, tokens int, scaled bool) *tiles.Call {
	layout, ok := tiles.NewLayout(dim, nbits)
	require.True(t, ok)
	r := &tiles.Call{
		Nbits: nbits, RowBytes: (dim*nbits + 7) / 8, CodeBytes: codeBytes,
		Tiles:   randomBytes(t, rng, tiles.BlockBytes*layout.Blocks()),
		Shift:   new([2][16]int32),
		Scores:  fenced.Slice[[8]uint64](t, k),
		Codes:   fenced.Slice[byte](t, tokens*codeBytes),
		Factors: randomBytes(t, rng, 2*tokens),
		Scratch: fenced.Slice[byte](t, tiles.ScratchSize(layout.Blocks())),
	}
	r.Residuals = randomBytes(t, rng, tokens*r.RowBytes)
	for b := range layout.Blocks() {
		r.Offsets = append(r.Offsets, layout.Offset(b))
	}
	for c := range r.Scores {
		for w := range r.Scores[c] {
			r.Scores[c][w] = rng.Uint64()
		}
	}
	for i := range tokens {
		if codeBytes == 2 {
			binary.LittleEndian.PutUint16(r.Codes[2*i:], uint16(rng.IntN(k)))
		} else {
			binary.LittleEndian.PutUint32(r.Codes[4*i:], uint32(rng.IntN(k)))
		}
	}
	for h := range r.Shift {
		for i := range r.Shift[h] {
			r.Shift[h][i] = int32(rng.IntN(12))
		}
	}
	if scaled {
		r.Scales = fenced.Slice[uint32](t, k)
		for c := range r.Scales {
			r.Scales[c] = rng.Uint32N(32768) * 0x10001
		}
	}
	return r
}

// randomLengths is documents' numbers of tokens, and their sum.
func randomLengths(rng *rand.Rand) (lengths []int, tokens int) {
	lengths = []int{rng.IntN(70), 0, 16, 1 + rng.IntN(15), 1 + rng.IntN(15), 17, 32, rng.IntN(200), 31}
	rng.Shuffle(len(lengths), func(i, j int) { lengths[i], lengths[j] = lengths[j], lengths[i] })
	for _, n := range lengths {
		tokens += n
	}
	return lengths, tokens
}

// planSome plans some documents in any order, and says whether one of them has tokens.
func planSome(r *tiles.Call, rng *rand.Rand, lengths []int) bool {
	order := rng.Perm(len(lengths))[:1+rng.IntN(len(lengths))]
	r.StartPlan()
	for _, d := range order {
		lo := 0
		for _, n := range lengths[:d] {
			lo += n
		}
		r.PlanTokens(d, lo, lo+lengths[d])
	}
	return r.EndPlan(len(lengths))
}

const testCentroids = 71

func testRerank(t *testing.T, rng *rand.Rand, nbits, dim, codeBytes int, scaled bool) {
	lengths, tokens := randomLengths(rng)
	r := newRerank(t, rng, nbits, dim, codeBytes, testCentroids, tokens, scaled)
	start := make([][32]int16, len(lengths)+1)
	for d := range start {
		for i := range start[d] {
			start[d][i] = math.MinInt16 + int16(d*i)
		}
	}
	if !planSome(r, rng, lengths) {
		return
	}
	r.Best = slices.Clone(start)
	tiletest.Rerank(r, dim)
	want := r.Best[:len(lengths)]
	for range 2 { // the second time with what the first left in the scratch
		r.Best = slices.Clone(start)
		amx.Rerank(r)
		require.Equal(t, want, r.Best[:len(lengths)])
	}
}

// BenchmarkRerank times documents of 96 tokens from arrays that stay in the
// second-level cache, and from arrays that do not, with random codes.
func BenchmarkRerank(b *testing.B) {
	benchmark(b, func(b *testing.B, rng *rand.Rand, nbits, dim, k, tokens int) (*tiles.Call, func()) {
		r := newRerank(b, rng, nbits, dim, 4, k, tokens, false)
		r.Best = make([][32]int16, 81)
		return r, func() { amx.Rerank(r) }
	})
}

// BenchmarkFine is BenchmarkRerank for level Fine.
func BenchmarkFine(b *testing.B) {
	benchmark(b, func(b *testing.B, rng *rand.Rand, nbits, dim, k, tokens int) (*tiles.Call, func()) {
		f := newFine(b, rng, nbits, dim, 4, k, tokens, 32, false)
		f.Maxima = make([][32]float32, 81)
		return &f.Call, func() { amx.Fine(f) }
	})
}

func benchmark(b *testing.B, newCall func(b *testing.B, rng *rand.Rand, nbits, dim, k, tokens int) (plan *tiles.Call, call func())) {
	if !amx.Supported() {
		b.Skip("this processor or operating system lacks AMX")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range []struct {
		name      string
		k, tokens int
	}{{"hot", 256, 96 * 80}, {"K=65536", 1 << 16, 96 * 4000}} {
		for _, shape := range [][2]int{{1, 128}, {2, 128}, {4, 128}, {8, 128}, {2, 64}, {2, 96}, {2, 768}} {
			b.Run(fmt.Sprintf("%s/n=%d/d=%d", size.name, shape[0], shape[1]), func(b *testing.B) {
				plan, call := newCall(b, rng, shape[0], shape[1], size.k, size.tokens)
				at := 0
				b.ResetTimer()
				for range b.N {
					plan.StartPlan()
					for d := range 80 {
						plan.PlanTokens(d, at, at+96)
						if at += 96; at == size.tokens {
							at = 0
						}
					}
					plan.EndPlan(80)
					call()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(80*96), "ns/token")
			})
		}
	}
}

func newFine(t testing.TB, rng *rand.Rand, nbits, dim, codeBytes, k, tokens, n int, scaled bool) *tiles.Fine {
	layout, ok := tiles.NewLayout(dim, nbits)
	require.True(t, ok)
	f := &tiles.Fine{
		Call:   *newRerank(t, rng, nbits, dim, codeBytes, k, tokens, false),
		Stride: (n + 7) &^ 7, N: n,
		Mid: new([32]float32), Unit: new([32]float32),
	}
	f.Scratch = fenced.Slice[byte](t, tiles.FineScratchSize(layout.Blocks()))
	f.Rows = fenced.Slice[float32](t, k*f.Stride)
	for i := range f.Rows {
		f.Rows[i] = rng.Float32() - 0.5
	}
	for i := range n {
		f.Mid[i], f.Unit[i] = rng.Float32()-0.5, rng.Float32()*1e-6
	}
	if scaled {
		f.RowScales = fenced.Slice[float32](t, k)
		for c := range f.RowScales {
			f.RowScales[c] = rng.Float32()
		}
	}
	return f
}

func testFine(t *testing.T, rng *rand.Rand, nbits, dim, codeBytes int, scaled bool) {
	lengths, tokens := randomLengths(rng)
	n := []int{1, 7, 16, 17, 32}[rng.IntN(5)]
	f := newFine(t, rng, nbits, dim, codeBytes, testCentroids, tokens, n, scaled)
	start := make([][32]float32, len(lengths)+1)
	for d := range start {
		for i := range start[d] {
			start[d][i] = float32(math.Inf(-1))
			if d%3 == 1 {
				start[d][i] = float32(d * i)
			}
		}
	}
	if !planSome(&f.Call, rng, lengths) {
		return
	}
	of := func() (bits [][32]uint32) {
		for _, m := range f.Maxima[:len(lengths)] {
			var b [32]uint32
			for i, v := range m[:n] {
				b[i] = math.Float32bits(v)
			}
			bits = append(bits, b)
		}
		return bits
	}
	f.Maxima = slices.Clone(start)
	tiletest.Fine(f, dim)
	want := of()
	for range 2 { // the second time with what the first left in the scratch
		f.Maxima = slices.Clone(start)
		amx.Fine(f)
		require.Equal(t, want, of())
	}
}
