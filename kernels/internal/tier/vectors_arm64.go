//go:build !purego

package tier

import "github.com/plaid-ir/plaid/kernels/internal/neon"

func neonVectors() Vectors {
	return Vectors{Uses: "neon", Rows: neon.MaxDotRows, MaxDot: neon.MaxDot, Squares: neon.Squares, AddScaled: neon.AddScaled}
}
