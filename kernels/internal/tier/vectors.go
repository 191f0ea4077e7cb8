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
	// AddScaled adds c·x to dst, each value by one fused operation.
	AddScaled func(dst, x []float32, c float32)
}

var portableVectors = Vectors{
	Uses: "generic", Rows: portable.MaxDotRows,
	MaxDot: portable.MaxDot, Squares: portable.Squares, AddScaled: portable.AddScaled,
}
