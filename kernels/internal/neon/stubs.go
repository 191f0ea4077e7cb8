//go:build arm64 && !purego

// Package neon has the inner loops of package tier for arm64, in Advanced SIMD (NEON), which
// every arm64 processor has. Package tier specifies each function at the field of its name;
// comments here add the differences. Lengths are not checked: package cpu does that.
// Functions may be called only if Supported returns true.
package neon

import (
	"golang.org/x/sys/cpu"
)

// Supported reports whether the processor supports the functions of this package except
// [Filter] and [Screen]. Every arm64 processor does.
func Supported() bool { return true }

// SupportedBytes reports whether the processor also multiplies bytes (the dot product
// extension of ARMv8.2), which [Filter] and [Screen] need.
func SupportedBytes() bool { return cpu.ARM64.HasASIMDDP }

//go:noescape
func Accumulate(acc [][8]uint64, tables [][256][8]uint64, vectors []byte, stride int)

//go:noescape
func Compose(table *[256][8]uint64, lo, hi *[16][8]uint64)

//go:noescape
func MaxFast(
	best [][32]int32, ranges [][2]uint32, tables [][256][8]uint64, scores [][8]uint64,
	codes []byte, codeBytes int, residuals, factors []byte, scales []uint32,
)

// MaxFine leaves the lanes of best from n on undefined.
//
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

// Dots is Rounded for the first n ≤ 32 columns of a panel, and DotsFused is CentroidScores
// for these. Both widen lo and hi to the range of each column, and may change the ranges
// from n on.
//
//go:noescape
func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)

//go:noescape
func DotsFused(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)

//go:noescape
func WidenBF16(dst []float32, src []byte)

//go:noescape
func WidenF16(dst []float32, src []byte)

//go:noescape
func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)

//go:noescape
func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)

// Filter needs k ≥ 4 vectors and SupportedBytes. Only hits of the same 16 rows are in the
// order of the vectors.
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
const MaxDotRows = 4

//go:noescape
func MaxDot(
	best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32,
)

//go:noescape
func Squares(dst [][8]float64, rows []float32, dim int)

//go:noescape
func AddScaled(dst, x []float32, c float32)

//go:noescape
func Above(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int

// Screen needs SupportedBytes.
//
//go:noescape
func Screen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32)
