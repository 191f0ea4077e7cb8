//go:build amd64 && !purego

// Package avx512 holds the inner loops of package tier for processors with
// AVX-512 F, BW, VL, DQ and VNNI. Lengths are not checked: package cpu does that.
// Call nothing here unless Supported.
package avx512

import (
	"golang.org/x/sys/cpu"
)

// Supported reports whether the processor and the operating system have what the
// functions of this package need.
func Supported() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512VNNI && x.HasAVX2 && x.HasFMA
}

// MaxLevels raises best[i] to the largest products, over the tokens of
// ranges[i], of the factor and S + a·(mid + unit·Σ q·b), with b the levels 0 to
// 2^nbits−1 of the token's fields and q the integers of the query: 8 bits of one
// part, or 256·high + low of two. query holds, for each field of a residual
// byte, each four bytes, and each part, four integers of each of 32 query
// tokens. levels is scratch memory, (8/nbits)·(4·rowBytes+64) bytes. S is read
// from scores[code·stride] on, a is scales[code], or 1 where scales is nil. The
// float32 operations are each rounded, in the order written from the inside
// out. n ≤ 32 lanes are in use.
//
//go:noescape
func MaxLevels(best [][32]float32, ranges [][2]uint32, query []byte, levels []byte, nbits, parts int, scores []float32, codes []byte, codeBytes, rowBytes int, residuals, factors []byte, scales []float32, stride, n int, mid, unit *[32]float32)

// Dots writes dst[r·stride+s] = ⟨row r, query s⟩ for m rows of dim values and
// the first n ≤ 32 queries, dimension j of which is at queries[32·j+s]. The
// products of a pair are rounded and added in the order of the dimensions. It
// lowers lo and raises hi to the range of each column.
//
//go:noescape
func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)

// DotsFused is Dots with products that are not rounded before they are added. Of every
// dimension of 12 rows it prefetches step bytes from ahead on.
//
//go:noescape
func DotsFused(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32, ahead *byte, step int)

// WidenBF16 converts len(dst) little-endian bfloat16 values.
//
//go:noescape
func WidenBF16(dst []float32, src []byte)

// WidenF16 converts len(dst) little-endian binary16 values.
//
//go:noescape
func WidenF16(dst []float32, src []byte)

// Bytes writes mul·S + add of n ≤ 32 columns of scores, each operation rounded,
// then the result rounded towards 0 and limited to 0..127; bytes from n on
// are 0. Where n is no multiple of 8, columns up to the next one must be
// there and 0, as mul and add are.
//
//go:noescape
func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)

// Words writes (mul·S + a·low) + bias of n ≤ 32 columns of scores, each
// operation rounded, then the result, of 0..65535, rounded towards 0, in lanes
// of 16 bits; lanes from n on are 0. a is the entry of scales for the row, or
// 1 where scales is nil. Where n is no multiple of 8, columns up to the next
// one must be there.
//
//go:noescape
func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)

// Filter multiplies k ≥ 6 vectors of unsigned bytes, a multiple of 16 long,
// with 64 of signed bytes, as Pack lays them out. For every 16 of the 64 and
// every vector with a product no more than margin below best it writes a hit,
// in the order of the vectors, and raises best: the 16 products, the number of
// the vector, counted from first, and the 16 as a mask of those that were
// hits, with their number, 0 to 3, above. The last vectors may occur twice.
// It returns the number of bytes written.
//
//go:noescape
func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int)

// Range lowers lo and raises hi to the range of each column of rows.
//
//go:noescape
func Range(lo, hi, rows []float32)

// Levels writes (v − lo)·inverse + ½ of every value of rows, rounded towards 0
// and limited to 0..255, in rows of stride bytes, a multiple of 16, those
// beyond the end of a row 0. It raises most[0] to the square of the norm of
// v − lo − step·level, most[1] to that of v, most[2] to that of level − 127.5,
// of each row, and adds all v² to most[3].
//
//go:noescape
func Levels(dst []byte, stride int, rows, lo, step, inverse []float32, most *[4]float32)

// Pack rounds x ⊙ step to the nearest multiples of unit, the largest of which
// is ±127, four to a group of bytes, a group every 256 bytes, and as many as
// fill a multiple of 16 dimensions. It returns unit and the squares of the
// norms of the rounding error and of x.
//
//go:noescape
func Pack(dst *byte, x, step []float32) (unit, err, norm float32)

// MaxDotRows is the least number of rows of MaxDot.
const MaxDotRows = 12

// MaxDot raises best[i], for the first n columns of a panel [dim, 32], to the largest
// product with one of m ≥ MaxDotRows rows, times scales[row] where scales is not nil, and
// sets arg[i] to the number of that row, counted from first. Products are chains
// of fused additions in the order of the dimensions.
//
//go:noescape
func MaxDot(best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32)

// Squares writes sums of the squares of whole groups of 8 values of each row of dim
// values: those of place j of the groups to dst[row][j].
//
//go:noescape
func Squares(dst [][8]float64, rows []float32, dim int)

// WidenI8 converts len(dst) bytes.
//
//go:noescape
func WidenI8(dst []float32, src []int8)

// SumProducts writes sums of the products of whole groups of 8 values: those of place j
// of the groups to dst[j].
//
//go:noescape
func SumProducts(dst *[8]float64, x, y []float32)

// Zero clears dst past the cache, for memory that nobody reads soon.
//
//go:noescape
func Zero(dst []float32)

// AddRows adds factors[i] times row list[i], as long as dst, to dst, one after another,
// each value by one fused operation.
//
//go:noescape
func AddRows(dst, rows []float32, list []uint32, factors []float32)

// AddScaled adds c·x to dst, each value by one fused operation.
//
//go:noescape
func AddScaled(dst, x []float32, c float32)

// ScreenRows is the least number of rows of Screen.
const ScreenRows = 12

// Screen writes the products of len(dst) ≥ ScreenRows rows of unsigned bytes with the 32
// columns of a panel of signed ones, times the scale of the row: start + Σ products,
// as float32. It raises most to the largest of each column. Rows are stride bytes
// apart, a multiple of 4; the panel has four bytes of each column, then the next four.
//
//go:noescape
func Screen(dst [][32]float32, most *[32]float32, levels []byte, stride int, panel []byte, start *[32]int32, scales []float32)

// Doubts lists the products that reach the limits of their columns: above, the
// number of the row, counted from first; below, 32 times the row, and the column.
// It returns how many there are.
//
//go:noescape
func Doubts(list []uint64, products [][32]float32, limits *[32]float32, first int) int

// DotPairs raises the best of a column to the products of the list, as Doubts writes
// it, a multiple of 32 long, of float32 rows and the columns of a panel [dim, 32], times
// the factor of the row where factors is not nil, and sets arg to the number of the
// row. Products have the bits of MaxDot.
//
//go:noescape
func DotPairs(best *[32]float32, arg *[32]int32, list []uint64, rows []float32, dim int, panel, factors []float32)
