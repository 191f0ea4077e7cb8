// Package tier has the inner loops of the kernels, by tier. A tier is a set of instructions
// of the processor. It has a struct of functions for each family of kernels, compressed
// tokens and plain vectors.
//
// tier.go defines the families, and their loops in plain Go. Each architecture replaces
// those that it has faster ones for (tier_amd64.go, tier_arm64.go).
package tier

import (
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/internal/portable"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// Tier is a set of instructions, with the loops written for it.
type Tier struct {
	Name    string  // "generic" is plain Go
	Tokens  Tokens  // loops over compressed tokens
	Vectors Vectors // loops over plain vectors
}

// Available lists the tiers that this processor can run, slowest first.
var Available = append([]*Tier{{Name: "generic", Tokens: portableTokens, Vectors: portableVectors}}, detect()...)

// A Row is the unit of tables: eight words, one cache line, that is 32 lanes of
// 16 bits or 16 lanes of 32. A ByteTable has a row for each value of a byte.
type (
	Row       = [8]uint64
	ByteTable = [256]Row
	ByteRow   = [4]uint64 // the bytes of 32 query tokens
)

// Tokens are the inner loops over compressed tokens: everything else is the same
// Go code on every processor. A tier replaces those loops that it has faster ones
// for; all of them compute the same integers, and the same float32 operations
// in the same order, so that the tiers agree to the bit.
type Tokens struct {
	// Uses names, for each stage, the tier whose loops are in use.
	Uses [Stages]string

	// Accumulate adds to acc[i] the rows that the bytes of vector i select, one
	// from each table: byte p of the vector, at i·stride + p, selects from table p.
	// Rows are added as words of 64 bits. Tiers that have a Filter do not need it.
	Accumulate func(acc []Row, tables []ByteTable, vectors []byte, stride int)
	// Compose fills a byte table from the rows of its two nibbles: the entry of
	// byte b is lo[b&15] + hi[b>>4].
	Compose func(t *ByteTable, lo, hi *[16]Row)

	// MaxFast raises best[i] to the largest products
	//
	//	factor · (scores[code] + Σ tables − 32768)
	//
	// over the tokens of ranges[i], for each 16-bit lane; best[i] is at least −2³⁰. It
	// has the products of even lanes first, then those of odd lanes. If scales is not
	// nil, the sum of the tables is multiplied by scales[code]/2¹⁶ and rounded down
	// before it is added.
	MaxFast func(best [][32]int32, ranges [][2]uint32, tables []ByteTable, scores []Row,
		codes []byte, codeBytes int, residuals, factors []byte, scales []uint32)
	// Tiles computes level Fast, in place of MaxFast, for codecs with a uniform codebook,
	// with other roundings. nil means that the tier has no such loop.
	Tiles func(*tiles.Call)
	// FineTiles computes level Fine, in place of MaxLevels, with the same bits. nil means
	// that the tier has no such loop.
	FineTiles func(*tiles.Fine)
	// MaxFine raises best[i] to the largest products, over the tokens of
	// ranges[i], of the factor and scores[code·stride+lane] + a·(mid + unit·(sum − 2³¹)),
	// with the 32-bit lanes of the sum Σ tables, for the first n lanes; a is
	// scales[code], or 1. Each float32 operation is rounded, from the inside out.
	MaxFine func(best [][16]float32, ranges [][2]uint32, tables []ByteTable, scores []float32,
		codes []byte, codeBytes int, residuals, factors []byte, scales []float32,
		stride, n int, mid, unit *[16]float32)
	// MaxLevels is MaxFine for a uniform codebook and groups of 32 query tokens, by dot
	// products of levels with query integers of one or two bytes (parts), in the layout of
	// avx512.MaxLevels. levels is scratch memory, (8/nbits)·(4·rowBytes+64) bytes. If
	// words is not nil, S is not read from scores: it is step·(word − 32768), with the
	// 16-bit lanes of words[code]. nil means that the tier has no such loop.
	MaxLevels func(best [][32]float32, ranges [][2]uint32, query, levels []byte, nbits, parts int, scores []float32,
		codes []byte, codeBytes, rowBytes int, residuals, factors []byte, scales []float32,
		stride, n int, mid, unit *[32]float32, words []Row, step *[32]float32)
	// MaxBytes raises the bytes of best[i] to those of rows[code] over the
	// tokens of ranges[i].
	MaxBytes func(best []ByteRow, ranges [][2]uint32, rows []ByteRow, codes []byte, codeBytes int)

	// CentroidScores writes the products of m centroids with all query tokens,
	// the padding of a row set to 0, and widens the ranges lo to hi of the columns.
	// A product is a chain of fused additions in the order of the dimensions. ahead has
	// the stored bytes of the next centroids, which the loop may prefetch, or is nil.
	CentroidScores func(dst []float32, centroids []float32, m int, q *QueryVectors, lo, hi []float32, ahead []byte)
	// Screen writes start + Σ products of rows of unsigned bytes, stride apart, with a
	// panel of signed bytes of −63 to 63, [stride/4, 32, 4]. stride is a multiple of 4.
	// There are ScreenRows to 256 rows. Sums are integers that float32 represents exactly.
	// nil means that the tier does not multiply bytes.
	Screen func(dst [][32]float32, levels []byte, stride int, panel []byte, start *[32]int32)
	// Rounded is CentroidScores with each product rounded before it is added, as the
	// search for nearest centroids needs it. nil means that plain Go computes these.
	Rounded func(dst []float32, centroids []float32, m int, q *QueryVectors, lo, hi []float32)
	// WidenBF16 and WidenF16 convert 16-bit floats. nil means that plain Go converts them.
	WidenBF16, WidenF16 func(dst []float32, src []byte)
	// Above writes to rows the numbers of those of the len(rows) rows of S that
	// exceed limits in any of their first n ≤ 32 columns, and returns their number.
	// limits is +Inf from n on.
	Above func(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int
	// Bytes writes mul·S + add for the first n ≤ 32 columns of S as bytes: each operation
	// is rounded, and the result is rounded down and limited to 0..127. Bytes of other
	// columns are 0. Rows of S are padded with zeros to a multiple of 8 columns, and mul
	// and add are 0 there.
	Bytes func(dst []ByteRow, scores []float32, stride, n int, mul, add *[32]float32)
	// Words writes (mul·S + a·low) + bias for the first n ≤ 32 columns of S in 16-bit
	// lanes: each operation is rounded, and the result is rounded down. Lanes of other
	// columns are 0. a is the entry of scales for the row, or 1. Rows of S are padded to
	// a multiple of 8 columns. On tiers with tiles the results may exceed 16 bits; the
	// lowest 16 are kept.
	Words func(dst []Row, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)
	// Coarse does the work of Bytes, Words and Above for a block of products of 32 columns.
	// It writes bytes and words, and to found the rows that exceed a limit, and returns
	// their number. An entry of found has the number of the row in its upper 32 bits, and in
	// the lower ones a bit for each column that exceeds its limit. All slices have the
	// length of products; scales may be nil. Words may exceed 16 bits as those of Words.
	Coarse func(
		words []Row, bytes []ByteRow, found []uint64, products [][32]float32, c *CoarseUnits, scales []float32,
	) int

	// Filter has the loops that find nearest centroids by products of bytes. nil means that
	// the tier has none.
	Filter *Filter
}

// CoarseUnits has the arguments of Bytes, Words and Above for one group of query tokens.
// Unused columns have units of 0 and limits of +Inf.
type CoarseUnits struct {
	MulBytes, AddBytes [32]float32
	MulWords, LowWords [32]float32
	Limits             [32]float32
	Bias               float32 // of the words
}

// Filter has the loops that find the centroids that may be the nearest of 64 rows, by
// products of bytes.
type Filter struct {
	// MaxLevel is the largest level: 255, or 127 where products of two bytes are
	// added in 16 bits.
	MaxLevel float32
	// Range widens lo to hi by the columns of rows.
	Range func(lo, hi, rows []float32)
	// Levels writes (row − lo)·inverse + ½ as bytes, rounded down and limited to
	// 0..MaxLevel. The bytes of a row are padded with zeros to stride, the dimension rounded
	// up to a multiple of 16. It raises most[0] to the largest square of the norm of a rounding
	// error, most[1] to that of a row, and most[2] to that of levels less MaxLevel/2. most[3]
	// is finite if all values are.
	Levels func(dst []byte, stride int, rows, lo, step, inverse []float32, most *[4]float32)
	// Pack rounds x ⊙ step to integers up to ±127 times the unit, which it returns with the
	// squares of the norms of the error and of x. Four dimensions are adjacent, the next four
	// 256 bytes later, up to a multiple of 16.
	Pack func(dst *byte, x, step []float32) (unit, err, norm float32)
	// Filter writes a hit for every centroid and group of 16 rows in which some product is
	// at most margin below best, and raises best. A hit has the 16 products, then the number
	// of the centroid (counted from first), and then a mask of the rows in its lower 16
	// bits and the number of the group, 0 to 3, above. Hits are in the order of the
	// centroids; the last centroid may occur twice. k, the number of centroids, is at least 6.
	// It returns the number of bytes written.
	Filter func(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) int
}

// ScreenRows is the least number of rows of Tokens.Screen.
const ScreenRows = 12

// Stages of the work on compressed tokens: indices of Tokens.Uses.
const (
	StageScores = iota
	StageApprox
	StageFast
	StageFine
	StageNearest
	Stages
)

// StageNames are the names of the stages.
var StageNames = [Stages]string{
	"centroid scores", "approximate score", "maxsim fast", "maxsim fine", "nearest centroid",
}

// portableTokens has the loops in plain Go.
var portableTokens = Tokens{
	Uses:       inAllStages("generic"),
	Accumulate: portable.Accumulate,
	Compose:    portable.Compose,
	MaxFast:    portable.MaxFast,
	MaxFine:    portable.MaxFine,
	MaxBytes:   portable.MaxBytes,
	CentroidScores: withoutPrefetch(func(dst []float32, centroids []float32, m int, q *QueryVectors, lo, hi []float32) {
		for g := 0; g < q.N; g += 32 {
			portable.Dots(dst[g:], q.Stride, centroids, m, q.Dim, q.Lanes[g*q.Dim:], min(32, q.N-g), lo[g:], hi[g:])
		}
	}),
	Above:  portable.Above,
	Bytes:  portable.Bytes,
	Words:  portable.Words,
	Coarse: coarseFromLoops(portable.Bytes, portable.Words, portable.Above),
}

// coarseFromLoops returns a Coarse that runs three loops one after the other.
func coarseFromLoops(
	bytes func([]ByteRow, []float32, int, int, *[32]float32, *[32]float32),
	words func([]Row, []float32, int, int, *[32]float32, *[32]float32, float32, []float32),
	above func([]uint32, []float32, int, int, *[32]float32) int,
) func([]Row, []ByteRow, []uint64, [][32]float32, *CoarseUnits, []float32) int {
	return func(w []Row, b []ByteRow, found []uint64, products [][32]float32, c *CoarseUnits, scales []float32) int {
		if len(products) == 0 {
			return 0
		}
		s := unsafe.Slice(&products[0][0], 32*len(products))
		bytes(b, s, 32, 32, &c.MulBytes, &c.AddBytes)
		words(w, s, 32, 32, &c.MulWords, &c.LowWords, c.Bias, scales)
		// The rear half of found's memory takes the row numbers. Entry i of found overwrites no
		// number beyond the i-th.
		rows := unsafe.Slice((*uint32)(unsafe.Pointer(&found[0])), 2*len(found))[len(found):]
		n := above(rows, s, 32, 32, &c.Limits)
		for i, r := range rows[:n] {
			var columns uint32
			for j, v := range &products[r] {
				if v > c.Limits[j] {
					columns |= 1 << j
				}
			}
			found[i] = uint64(r)<<32 | uint64(columns)
		}
		return n
	}
}

// withoutPrefetch returns a CentroidScores that ignores the next centroids.
func withoutPrefetch(
	scores func(dst, rows []float32, m int, q *QueryVectors, lo, hi []float32),
) func([]float32, []float32, int, *QueryVectors, []float32, []float32, []byte) {
	return func(dst, rows []float32, m int, q *QueryVectors, lo, hi []float32, _ []byte) {
		scores(dst, rows, m, q, lo, hi)
	}
}

// groupsOf32 returns a Rounded that calls a loop for each group of 32 query tokens.
func groupsOf32(
	dots func(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32),
) func([]float32, []float32, int, *QueryVectors, []float32, []float32) {
	return func(dst, rows []float32, m int, q *QueryVectors, lo, hi []float32) {
		for g := 0; g < q.N; g += 32 {
			dots(dst[g:], q.Stride, rows, m, q.Dim, q.Lanes[g*q.Dim:], min(32, q.Stride-g),
				(*[32]float32)(lo[g:]), (*[32]float32)(hi[g:]))
		}
	}
}

// inAllStages returns the Uses of a tier whose loops are used in all stages.
func inAllStages(tier string) (uses [Stages]string) {
	for i := range uses {
		uses[i] = tier
	}
	return uses
}

// QueryVectors has the vectors of a query in two orders: rows for plain Go, and lanes for
// loops with vector instructions.
type QueryVectors struct {
	N, Dim  int
	Stride  int       // length of a row of products: N rounded up to a multiple of 8
	Vectors []float32 // [N, Dim]
	Lanes   []float32 // [groups of 32, Dim, 32], 0 beyond N
}

// Reset sets the vectors. It copies them.
func (q *QueryVectors) Reset(vectors []float32, dim int) {
	q.Dim, q.N = dim, len(vectors)/dim
	q.Stride = (q.N + 7) &^ 7
	q.Vectors = append(q.Vectors[:0], vectors...)
	if n := (q.N + 31) / 32 * 32 * dim; cap(q.Lanes) < n {
		q.Lanes = make([]float32, n)
	} else {
		q.Lanes = q.Lanes[:n]
	}
	clear(q.Lanes[q.N/32*32*dim:])
	for i := range q.N {
		lane := q.Lanes[i/32*32*dim+i%32:]
		for j, v := range vectors[i*dim : (i+1)*dim] {
			lane[32*j] = v
		}
	}
}

// Vectors has the inner loops over plain float32 vectors. All tiers give the same
// bits. Lengths are not checked.
type Vectors struct {
	// Uses names the tier whose loops are in use.
	Uses string
	// Rows is the least number of rows of MaxDot, the size of its tile.
	Rows int
	// MaxDot raises best[i], for the first n columns of a panel [dim, 32], to the
	// largest product with one of m rows, times scales[row] unless scales is nil,
	// and sets arg[i] to the number of that row, counted from first; the first row on
	// ties. Products are chains of fused additions in the order of the dimensions.
	MaxDot func(
		best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32,
	)
	// Squares adds up the squares of whole groups of 8 values of each row: dst[row][j] is
	// the sum for the values j of all groups.
	Squares func(dst [][8]float64, rows []float32, dim int)
	// Products adds up the products of whole groups of 8 values: dst[j] is the sum for the
	// values j of all groups.
	Products func(dst *[8]float64, x, y []float32)
	// AddScaled adds c·x to dst, each value by one fused operation.
	AddScaled func(dst, x []float32, c float32)
	// AddRows calls AddScaled for the listed rows, each as long as dst, one after another.
	AddRows func(dst, rows []float32, list []uint32, factors []float32)
	// Zero clears a large slice. It may bypass the cache.
	Zero func(dst []float32)
	// WidenI8 converts bytes. nil means that plain Go converts them.
	WidenI8 func(dst []float32, src []int8)
	// Screen has the loops that exclude rows by products of fewer bits. nil means that the
	// tier has none.
	Screen *Screen
}

// Screen has the loops that find the rows that may have the largest product. Rows are
// rounded to levels, bytes or bfloat16, whose products are fast; they leave few rows for
// which the products of float32 are needed.
type Screen struct {
	// Rows is the least number of rows of Products.
	Rows int
	// Halves means that levels are bfloat16, not bytes.
	Halves bool
	// Round writes the levels of rows, stride bytes apart, their units, and in sums the
	// squares of the norms of the rounding error and of the row. stride is Stride(dim). The
	// levels of a row times its unit approximate the row. Bytes are levels of ±127 with 128
	// added, and the unit is 1/127 of the largest value; the unit of bfloat16 is 1.
	Round func(levels []byte, stride int, rows []float32, dim int, units []float32, sums [][2]float32)
	// Products writes the products of levels with a panel, times the scale of the row, and
	// raises most to the largest of each column. A panel has the first four bytes of each of
	// 32 columns, then the next four, and so on: bfloat16, or signed bytes. start is added to
	// sums of bytes, and ignored for bfloat16. Sums of bytes are not rounded; others are
	// float32 sums in any order. scales may be nil for bfloat16.
	Products func(dst [][32]float32, most *[32]float32, levels []byte, stride int,
		panel []byte, start *[32]int32, scales []float32)
	// Doubts lists the products that reach the limits of their columns, and returns their
	// number. An entry has the number of the row, counted from first, in its upper 32 bits,
	// and 32 times the row plus the column in its lower ones.
	Doubts func(list []uint64, products [][32]float32, limits *[32]float32, first int) int
	// Pairs raises the best of each column to the products of a list of Doubts, whose length
	// is a multiple of 32. Rows are float32, the panel is [dim, 32], and factors, unless
	// nil, multiply the products of a row. The bits are those of MaxDot.
	Pairs func(best *[32]float32, arg *[32]int32, list []uint64, rows []float32, dim int, panel, factors []float32)
}

// Stride returns the number of bytes of the levels of dim values.
func (s *Screen) Stride(dim int) int {
	if s.Halves {
		return (2*dim + 63) &^ 63
	}
	return (dim + 3) &^ 3
}

var portableVectors = Vectors{
	Uses:      "generic",
	Rows:      portable.MaxDotRows,
	MaxDot:    portable.MaxDot,
	Squares:   portable.Squares,
	Products:  portable.SumProducts,
	AddScaled: portable.AddScaled,
	AddRows:   addRows(portable.AddScaled),
	Zero:      clearFloats,
}

// clearFloats is the Zero of tiers without such a loop.
func clearFloats(dst []float32) { clear(dst) }

// addRows returns an AddRows that calls AddScaled for each row.
func addRows(addScaled func(dst, x []float32, c float32)) func(dst, rows []float32, list []uint32, factors []float32) {
	return func(dst, rows []float32, list []uint32, factors []float32) {
		for i, r := range list {
			addScaled(dst, rows[int(r)*len(dst):(int(r)+1)*len(dst)], factors[i])
		}
	}
}
