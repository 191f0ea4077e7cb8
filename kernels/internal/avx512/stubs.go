//go:build amd64 && !purego

// Package avx512 has the inner loops of package tier for processors with AVX-512 F, BW, VL,
// DQ and VNNI. Package tier specifies each function at the field of its name; comments here
// add the differences. Lengths are not checked: package cpu does that. Functions may be
// called only if Supported returns true.
package avx512

import (
	"golang.org/x/sys/cpu"
)

// Supported reports whether the processor and the operating system support the
// functions of this package.
func Supported() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512VNNI && x.HasAVX2 && x.HasFMA
}

// MaxLevels raises best[i] to the largest products
//
//	factor · (S + a·(mid + unit·Σ q·b))
//
// over the tokens of ranges[i]. b are the levels 0 to 2^nbits−1 of the token's fields, and
// q the integers of the query: one byte if parts is 1, or 256·high + low of two. query is
// [fields of a residual byte, residual bytes/4, parts, 32 query tokens, 4], high before low.
// levels is scratch memory, (8/nbits)·(4·rowBytes+64) bytes. S is read from
// scores[code·stride] on or, if words is not nil, is step·(word − 32768). a is scales[code],
// or 1 if scales is nil. Each float32 operation is rounded, from the inside out. The first
// n ≤ 32 lanes are used.
//
//go:noescape
func MaxLevels(
	best [][32]float32, ranges [][2]uint32, query []byte, levels []byte, nbits, parts int, scores []float32,
	codes []byte, codeBytes, rowBytes int, residuals, factors []byte, scales []float32,
	stride, n int, mid, unit *[32]float32, words [][8]uint64, step *[32]float32,
)

// Dots is Rounded for the first n ≤ 32 columns of a panel. It widens lo and hi to the range
// of each column.
//
//go:noescape
func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)

// DotsFused is CentroidScores for the first n ≤ 32 columns of a panel, as Dots. For every
// dimension of 12 rows it prefetches step bytes from ahead on.
//
//go:noescape
func DotsFused(
	dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32,
	ahead *byte, step int,
)

//go:noescape
func WidenBF16(dst []float32, src []byte)

//go:noescape
func WidenF16(dst []float32, src []byte)

//go:noescape
func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)

//go:noescape
func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)

// Coarse takes the arrays of tier.CoarseUnits one by one.
//
//go:noescape
func Coarse(
	words [][8]uint64, bytes [][4]uint64, found []uint64, products [][32]float32,
	mulBytes, addBytes, mulWords, lowWords, limits *[32]float32, bias float32, scales []float32,
) int

// Filter needs k ≥ 6 vectors.
//
//go:noescape
func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int)

//go:noescape
func Range(lo, hi, rows []float32)

//go:noescape
func Levels(dst []byte, stride int, rows, lo, step, inverse []float32, most *[4]float32)

//go:noescape
func Pack(dst *byte, x, step []float32) (unit, err, norm float32)

// MaxDotRows is the least number of rows of MaxDot.
const MaxDotRows = 12

//go:noescape
func MaxDot(
	best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32,
)

//go:noescape
func Squares(dst [][8]float64, rows []float32, dim int)

//go:noescape
func WidenI8(dst []float32, src []int8)

// SumProducts is tier.Vectors.Products.
//
//go:noescape
func SumProducts(dst *[8]float64, x, y []float32)

//go:noescape
func Zero(dst []float32)

//go:noescape
func AddRows(dst, rows []float32, list []uint32, factors []float32)

//go:noescape
func AddScaled(dst, x []float32, c float32)

// ScreenRows is the least number of rows of Screen.
const ScreenRows = 12

// Screen is tier.Screen.Products. With nil scales it raises no maxima, and is
// tier.Tokens.Screen.
//
//go:noescape
func Screen(
	dst [][32]float32, most *[32]float32, levels []byte, stride int, panel []byte, start *[32]int32, scales []float32,
)

// RoundBytes is tier.Screen.Round for bytes.
//
//go:noescape
func RoundBytes(dst []byte, stride int, rows []float32, dim int, units []float32, sums [][2]float32)

// RoundHalves is tier.Screen.Round for bfloat16.
//
//go:noescape
func RoundHalves(dst []byte, stride int, rows []float32, dim int, units []float32, sums [][2]float32)

//go:noescape
func Doubts(list []uint64, products [][32]float32, limits *[32]float32, first int) int

// DotPairs is tier.Screen.Pairs.
//
//go:noescape
func DotPairs(best *[32]float32, arg *[32]int32, list []uint64, rows []float32, dim int, panel, factors []float32)
