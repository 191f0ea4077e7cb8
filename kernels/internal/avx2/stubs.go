//go:build amd64 && !purego

// Package avx2 has the inner loops of package tier for processors with AVX2. Package tier
// specifies each function at the field of its name; comments here add the differences.
// Lengths are not checked: package cpu does that. Functions may be called only if Supported
// returns true.
package avx2

import (
	"golang.org/x/sys/cpu"
)

// Supported reports whether the processor and the operating system have AVX2 and
// fused multiply-adds.
func Supported() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }

//go:noescape
func Compose(table *[256][8]uint64, lo, hi *[16][8]uint64)

//go:noescape
func MaxFast(
	best [][32]int32, ranges [][2]uint32, tables [][256][8]uint64, scores [][8]uint64,
	codes []byte, codeBytes int, residuals, factors []byte, scales []uint32,
)

//go:noescape
func MaxFine(
	best [][16]float32, ranges [][2]uint32, tables [][256][8]uint64, scores []float32,
	codes []byte, codeBytes int, residuals, factors []byte, scales []float32,
	stride, n int, mid, unit *[16]float32,
)

// MaxBytes2 is MaxBytes for codes of 2 bytes, MaxBytes4 for those of 4.
//
//go:noescape
func MaxBytes2(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)

//go:noescape
func MaxBytes4(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)

// Dots is Rounded for the first n ≤ 16 columns of a panel, and DotsFused is CentroidScores
// for these. Both widen lo and hi to the range of each column.
//
//go:noescape
func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[16]float32)

//go:noescape
func DotsFused(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[16]float32)

//go:noescape
func WidenBF16(dst []float32, src []byte)

//go:noescape
func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)

//go:noescape
func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)

// Filter needs k ≥ 4 vectors.
//
//go:noescape
func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int)

//go:noescape
func Range(lo, hi, rows []float32)

//go:noescape
func Levels(dst []byte, stride int, rows, lo, step, inverse []float32, most *[4]float32)

//go:noescape
func Pack(dst *byte, x, step []float32) (unit, err, norm float32)

// Coarse takes the arrays of tier.CoarseUnits one by one.
//
//go:noescape
func Coarse(
	words [][8]uint64, bytes [][4]uint64, found []uint64, products [][32]float32,
	mulBytes, addBytes, mulWords, lowWords, limits *[32]float32, bias float32, scales []float32,
) int

//go:noescape
func Above(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int

// MaxDotRows is the least number of rows of MaxDot.
const MaxDotRows = 6

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
func AddScaled(dst, x []float32, c float32)

//go:noescape
func Screen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32)
