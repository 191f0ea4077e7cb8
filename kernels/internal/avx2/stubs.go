//go:build amd64 && !purego

// Package avx2 holds the inner loops of package tier for processors with
// AVX2.
//
// A table is 256 rows of 64 bytes, a row for each value of a byte of a packed
// residual, and a row is two registers. Lengths are not checked: package
// cpu does that. Call nothing here unless Supported.
package avx2

import (
	"golang.org/x/sys/cpu"
)

// Supported reports whether the processor and the operating system have AVX2 and
// fused multiply-adds.
func Supported() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }

// Accumulate adds to acc[i] the rows that the bytes of vector i select, one
// from each table: byte p of the vector, at i·stride + p, selects from
// tables[p]. Rows are added as words of 64 bits.
//
//go:noescape
func Accumulate(acc [][8]uint64, tables [][256][8]uint64, vectors []byte, stride int)

// Compose fills a table from the rows of its two nibbles: the entry of byte b
// is lo[b&15] + hi[b>>4].
//
//go:noescape
func Compose(table *[256][8]uint64, lo, hi *[16][8]uint64)

// MaxFast raises best[i] to the largest products, over the tokens of ranges[i],
// of the factor and the sum less 32768, where the sum of a token is, in lanes
// of 16 bits, scores[code] + Σ tables; where scales is not nil, Σ tables is
// first multiplied by scales[code]/2¹⁶, at most 1, and rounded down. The 16
// products of even lanes come first. A residual has a byte for each table;
// codes have 2 or 4 bytes, factors are int16.
//
//go:noescape
func MaxFast(best [][32]int32, ranges [][2]uint32, tables [][256][8]uint64, scores [][8]uint64, codes []byte, codeBytes int, residuals, factors []byte, scales []uint32)

// MaxFine raises best[i] to the largest products, over the tokens of ranges[i],
// of the factor and S + a·(mid + unit·(Σ tables − 2³¹)), with sums in lanes of
// 32 bits, S from scores[code·stride] on, and a = scales[code], or 1 where
// scales is nil. The float32 operations are each rounded, in the order
// written from the inside out. n ≤ 16 lanes are in use.
//
//go:noescape
func MaxFine(best [][16]float32, ranges [][2]uint32, tables [][256][8]uint64, scores []float32, codes []byte, codeBytes int, residuals, factors []byte, scales []float32, stride, n int, mid, unit *[16]float32)

// MaxBytes2 raises the bytes of best[i] to those of rows[code] over the tokens
// of ranges[i]. Codes have 2 bytes.
//
//go:noescape
func MaxBytes2(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)

// MaxBytes4 is MaxBytes2 for codes of 4 bytes.
//
//go:noescape
func MaxBytes4(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)

// Dots writes dst[r·stride+s] = ⟨row r, query s⟩ for m rows of dim values and
// the first n ≤ 16 queries, dimension j of which is at queries[32·j+s]. The
// products of a pair are rounded and added in the order of the dimensions. It
// lowers lo and raises hi to the range of each column.
//
//go:noescape
func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[16]float32)

// DotsFused is Dots with products that are not rounded before they are added.
//
//go:noescape
func DotsFused(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[16]float32)

// WidenBF16 converts len(dst) little-endian bfloat16 values.
//
//go:noescape
func WidenBF16(dst []float32, src []byte)

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

// Filter multiplies k ≥ 4 vectors of bytes of 0 to 127, a multiple of 16 long,
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
// and limited to 0..127, in rows of stride bytes, a multiple of 16, those
// beyond the end of a row 0. It raises most[0] to the square of the norm of
// v − lo − step·level, most[1] to that of v, most[2] to that of level − 63.5,
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

// Above writes to rows the numbers of those of the len(rows) rows of scores, at
// i·stride, that exceed limits in any of their first n ≤ 32 columns, and returns
// how many there are. limits is +Inf from n on.
//
//go:noescape
func Above(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int

// MaxDotRows is the least number of rows of MaxDot.
const MaxDotRows = 6

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

// AddScaled adds c·x to dst, each value by one fused operation.
//
//go:noescape
func AddScaled(dst, x []float32, c float32)

// Screen writes the products of len(dst) rows of unsigned bytes with the 32 columns of a
// panel of signed ones of −63 to 63: start + Σ products, as float32. Rows are stride
// bytes apart, a multiple of 4; the panel has four bytes of each column, then the next
// four.
//
//go:noescape
func Screen(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32)
