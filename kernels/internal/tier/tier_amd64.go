//go:build !purego

package tier

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/kernels/internal/amx"
	"github.com/plaid-ir/plaid/kernels/internal/avx2"
	"github.com/plaid-ir/plaid/kernels/internal/avx512"
)

// detect returns the tiers other than plain Go that this processor can run.
func detect() (tiers []*Tier) {
	if avx2.Supported() {
		tiers = append(tiers, &Tier{"avx2", avx2Tokens(), avx2Vectors()})
	}
	if avx512.Supported() {
		tiers = append(tiers, &Tier{"avx512", avx512Tokens(), avx512Vectors()})
	}
	if amx.Supported() {
		tiers = append(tiers, &Tier{"amx", amxTokens(), amxVectors()})
	}
	return tiers
}

// Features lists the instruction sets of this processor that a tier uses.
func Features() (names []string) {
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"avx2", cpu.X86.HasAVX2},
		{"fma", cpu.X86.HasFMA},
		{"avx512f", cpu.X86.HasAVX512F},
		{"avx512bw", cpu.X86.HasAVX512BW},
		{"avx512vl", cpu.X86.HasAVX512VL},
		{"avx512dq", cpu.X86.HasAVX512DQ},
		{"avx512vnni", cpu.X86.HasAVX512VNNI},
		{"amx_tile", cpu.X86.HasAMXTile},
		{"amx_int8", cpu.X86.HasAMXInt8},
	} {
		if f.ok {
			names = append(names, f.name)
		}
	}
	return names
}

func avx2Tokens() Tokens {
	t := portableTokens
	t.Uses = inAllStages("avx2")
	t.Compose = avx2.Compose
	t.MaxFast = avx2.MaxFast
	t.MaxFine = avx2.MaxFine
	t.MaxBytes = avx2MaxBytes
	t.CentroidScores, t.Rounded = withoutPrefetch(groupsOf16(avx2.DotsFused)), groupsOf16(avx2.Dots)
	t.WidenBF16 = avx2.WidenBF16
	t.Bytes = avx2.Bytes
	t.Words = avx2.Words
	t.Above = avx2.Above
	t.Coarse = coarseWithArrays(avx2.Coarse)
	t.Screen = avx2.Screen
	t.Filter = &Filter{
		MaxLevel: 127,
		Range:    avx2.Range,
		Levels:   avx2.Levels,
		Pack:     avx2.Pack,
		Filter:   avx2.Filter,
	}
	return t
}

func avx2MaxBytes(best []ByteRow, ranges [][2]uint32, rows []ByteRow, codes []byte, codeBytes int) {
	if codeBytes == 2 {
		avx2.MaxBytes2(best, ranges, rows, codes)
	} else {
		avx2.MaxBytes4(best, ranges, rows, codes)
	}
}

// avx512Tokens replaces the loops of avx2Tokens that wider registers and VNNI make faster.
// It keeps those that look up tables and rows of 32 bytes.
func avx512Tokens() Tokens {
	t := avx2Tokens()
	t.Uses = inAllStages("avx512 (VNNI)")
	t.Uses[StageScores], t.Uses[StageApprox] = "avx512", "avx2"
	t.MaxLevels = avx512.MaxLevels
	t.CentroidScores = func(dst, rows []float32, m int, q *QueryVectors, lo, hi []float32, ahead []byte) {
		// The first group of query tokens prefetches the next centroids, step bytes for each
		// dimension of 12 rows.
		next, step := (*byte)(unsafe.Pointer(unsafe.SliceData(rows))), 0
		if len(ahead) > 0 {
			next, step = &ahead[0], 12*len(ahead)/(m*q.Dim)
		}
		for g := 0; g < q.N; g += 32 {
			avx512.DotsFused(dst[g:], q.Stride, rows, m, q.Dim, q.Lanes[g*q.Dim:], min(32, q.Stride-g),
				(*[32]float32)(lo[g:]), (*[32]float32)(hi[g:]), next, step)
			step = 0
		}
	}
	t.Rounded = groupsOf32(avx512.Dots)
	t.WidenBF16 = avx512.WidenBF16
	t.WidenF16 = avx512.WidenF16
	t.Bytes = avx512.Bytes
	t.Words = avx512.Words
	t.Coarse = coarseWithArrays(avx512.Coarse)
	t.Screen = avx512Screen
	t.Filter = &Filter{
		MaxLevel: 255,
		Range:    avx512.Range,
		Levels:   avx512.Levels,
		Pack:     avx512.Pack,
		Filter:   avx512.Filter,
	}
	return t
}

// coarseWithArrays returns a Coarse that passes the arrays of its units one by one, as the
// loops in assembly take them.
func coarseWithArrays(
	coarse func(words []Row, bytes []ByteRow, found []uint64, products [][32]float32,
		mulBytes, addBytes, mulWords, lowWords, limits *[32]float32, bias float32, scales []float32) int,
) func([]Row, []ByteRow, []uint64, [][32]float32, *CoarseUnits, []float32) int {
	return func(
		words []Row, bytes []ByteRow, found []uint64, products [][32]float32, c *CoarseUnits, scales []float32,
	) int {
		return coarse(words, bytes, found, products,
			&c.MulBytes, &c.AddBytes, &c.MulWords, &c.LowWords, &c.Limits, c.Bias, scales)
	}
}

func avx512Screen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32) {
	avx512.Screen(dst, nil, levels, stride, panel, start, nil)
}

// amxScreen screens small numbers of rows, which do not fill a tile, by avx512.
func amxScreen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32) {
	if len(dst) < amx.ScreenRows {
		avx512Screen(dst, levels, stride, panel, start)
		return
	}
	amx.Screen(dst, levels, stride, panel, start)
}

// amxTokens uses the matrix products of AMX for residuals of a uniform codebook and for
// products of bytes; its other loops are those of avx512.
func amxTokens() Tokens {
	t := avx512Tokens()
	t.Uses[StageFast] = "amx (int8)"
	t.Tiles = amx.Rerank
	t.Screen = amxScreen
	t.Uses[StageFine] = "amx (int8)"
	t.FineTiles = amx.Fine
	t.Uses[StageNearest] = "amx (int8)"
	f := *t.Filter
	f.Filter = amx.Filter
	t.Filter = &f
	return t
}

// groupsOf16 returns a Rounded that calls a loop for each group of 16 query tokens.
func groupsOf16(
	dots func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[16]float32),
) func([]float32, []float32, int, *QueryVectors, []float32, []float32) {
	return func(dst, rows []float32, m int, q *QueryVectors, lo, hi []float32) {
		for g := 0; g < q.N; g += 16 {
			dots(dst[g:], q.Stride, rows, m, q.Dim, q.Lanes[g/32*32*q.Dim+g%32:], min(16, q.Stride-g),
				(*[16]float32)(lo[g:]), (*[16]float32)(hi[g:]))
		}
	}
}

func avx2Vectors() Vectors {
	return Vectors{
		Uses:      "avx2",
		Rows:      avx2.MaxDotRows,
		MaxDot:    avx2.MaxDot,
		Squares:   avx2.Squares,
		Products:  avx2.SumProducts,
		AddScaled: avx2.AddScaled,
		AddRows:   addRows(avx2.AddScaled),
		Zero:      clearFloats,
		WidenI8:   avx2.WidenI8,
	}
}

func avx512Vectors() Vectors {
	return Vectors{
		Uses:      "avx512",
		Rows:      avx512.MaxDotRows,
		MaxDot:    avx512.MaxDot,
		Squares:   avx512.Squares,
		Products:  avx512.SumProducts,
		AddScaled: avx512.AddScaled,
		AddRows:   avx512.AddRows,
		Zero:      avx512.Zero,
		WidenI8:   avx512.WidenI8,
		Screen: &Screen{
			Rows:     avx512.ScreenRows,
			Round:    avx512.RoundBytes,
			Products: avx512.Screen,
			Doubts:   avx512.Doubts,
			Pairs:    avx512.DotPairs,
		},
	}
}

// amxVectors screens by matrix products of bfloat16, if the processor has them; its other
// loops are those of avx512.
func amxVectors() Vectors {
	v := avx512Vectors()
	if s := v.Screen; amx.SupportedHalves() {
		v.Uses = "avx512, amx (bfloat16) to screen"
		s.Rows, s.Halves, s.Round, s.Products = amx.HalvesRows, true, avx512.RoundHalves, amx.Halves
	}
	return v
}
