package tier

import "github.com/plaid-ir/plaid/kernels/internal/portable"

// Vectors are the inner loops over plain float32 vectors. All tiers give the same
// bits. Lengths are not checked.
type Vectors struct {
	// Uses is the tier whose loops are in use.
	Uses string
	// Rows is the least number of rows of MaxDot, the size of its tile.
	Rows int
	// MaxDot raises best[i], for the first n columns of a panel [dim, 32], to the
	// largest product with one of m rows, times scales[row] where scales is not nil,
	// and sets arg[i] to the number of that row, counted from first.
	MaxDot func(best *[32]float32, arg *[32]int32, rows []float32, m, dim, first int, panel []float32, n int, scales []float32)
	// Squares writes sums of the squares of whole groups of 8 values of each row:
	// those of place j of the groups to dst[row][j].
	Squares func(dst [][8]float64, rows []float32, dim int)
	// Products writes sums of the products of whole groups of 8 values: those of place j
	// of the groups to dst[j].
	Products func(dst *[8]float64, x, y []float32)
	// AddScaled adds c·x to dst, each value by one fused operation.
	AddScaled func(dst, x []float32, c float32)
	// AddRows does AddScaled with rows as long as dst, one after another.
	AddRows func(dst, rows []float32, list []uint32, factors []float32)
	// Zero clears much memory that nobody reads soon.
	Zero func(dst []float32)
	// WidenI8 converts bytes; nil where plain Go does.
	WidenI8 func(dst []float32, src []int8)
	// Screen has the loops that exclude rows by products of bytes, nil where there
	// are none.
	Screen *Screen
}

// Screen are the loops that find which rows may have the largest product.
type Screen struct {
	// Rows is the least number of rows of Products.
	Rows int
	// Products writes those of rows of unsigned bytes with a panel of signed ones,
	// times the scale of the row, and raises most to the largest of each column.
	Products func(dst [][32]float32, most *[32]float32, levels []byte, stride int, panel []byte, start *[32]int32, scales []float32)
	// Halves does the same with rows of HalvesDims·k values, at least HalvesRows of them,
	// as bfloat16 and a panel of bfloat16, whose values are side by side in twos; factors
	// may be nil. It is nil where there is no such loop. Sums are those of float32 in any
	// order.
	Halves                 func(dst [][32]float32, most *[32]float32, rows []uint16, dim int, panel []uint16, factors []float32)
	HalvesRows, HalvesDims int
	// Doubts lists the products that reach the limits of their columns: above, the
	// number of the row, counted from first; below, 32 times the row, and the column.
	Doubts func(list []uint64, products [][32]float32, limits *[32]float32, first int) int
	// Pairs raises the best of a column to the products of the list, a multiple of 32
	// long, of float32 rows and a panel [dim, 32], times the factor of the row where
	// factors is not nil, with the bits of MaxDot.
	Pairs func(best *[32]float32, arg *[32]int32, list []uint64, rows []float32, dim int, panel, factors []float32)
}

var portableVectors = Vectors{
	Uses: "generic", Rows: portable.MaxDotRows,
	MaxDot: portable.MaxDot, Squares: portable.Squares, Products: portable.SumProducts,
	AddScaled: portable.AddScaled, AddRows: addRows(portable.AddScaled), Zero: zero,
}

func zero(dst []float32) { clear(dst) }

// addRows is AddRows of tiers that have no loop of their own for it.
func addRows(add func(dst, x []float32, c float32)) func(dst, rows []float32, list []uint32, factors []float32) {
	return func(dst, rows []float32, list []uint32, factors []float32) {
		for i, r := range list {
			add(dst, rows[int(r)*len(dst):(int(r)+1)*len(dst)], factors[i])
		}
	}
}
