//go:build !purego

package tier

import (
	"github.com/plaid-ir/plaid/kernels/internal/amx"
	"github.com/plaid-ir/plaid/kernels/internal/avx2"
	"github.com/plaid-ir/plaid/kernels/internal/avx512"
)

func avx2Vectors() Vectors {
	return Vectors{Uses: "avx2", Rows: avx2.MaxDotRows, MaxDot: avx2.MaxDot, Squares: avx2.Squares,
		Products: avx2.SumProducts, AddScaled: avx2.AddScaled, AddRows: addRows(avx2.AddScaled), Zero: zero, WidenI8: avx2.WidenI8}
}

func avx512Vectors() Vectors {
	return Vectors{Uses: "avx512", Rows: avx512.MaxDotRows, MaxDot: avx512.MaxDot, Squares: avx512.Squares,
		Products: avx512.SumProducts, AddScaled: avx512.AddScaled, AddRows: avx512.AddRows, Zero: avx512.Zero, WidenI8: avx512.WidenI8,
		Screen: &Screen{Rows: avx512.ScreenRows, Products: avx512.Screen, Doubts: avx512.Doubts, Pairs: avx512.DotPairs}}
}

// amxVectors screens bfloat16 as it is, by matrix products.
func amxVectors() Vectors {
	v := avx512Vectors()
	if amx.SupportedHalves() {
		v.Uses, v.Screen.Halves = "avx512, amx (bfloat16) to screen", amx.Halves
		v.Screen.HalvesRows, v.Screen.HalvesDims = amx.HalvesRows, amx.HalvesDims
	}
	return v
}
