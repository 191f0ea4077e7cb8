//go:build !purego

package tier

import (
	"github.com/plaid-ir/plaid/kernels/internal/neon"
	"github.com/plaid-ir/plaid/kernels/internal/portable"
)

func neonVectors() Vectors {
	return Vectors{Uses: "neon", Rows: neon.MaxDotRows, MaxDot: neon.MaxDot, Squares: neon.Squares,
		Products: portable.SumProducts, AddScaled: neon.AddScaled, AddRows: addRows(neon.AddScaled), Zero: zero}
}
