//go:build !purego

package amx

import "unsafe"

//go:noescape
func halves(dst *[32]float32, most *[32]float32, rows *uint16, n, dim int, panel *uint16, factors *float32, config *[64]byte)

// HalvesRows is the least number of rows of Halves, and HalvesDims what its dimensions
// are a multiple of.
const HalvesRows, HalvesDims = 16, 32

// Halves writes the products of len(dst) ≥ HalvesRows rows of dim bfloat16 values with the
// 32 columns of a panel of such, times the factor of the row where factors is not nil, and
// raises most to the largest of each column. The panel has two values of each column,
// then the next two. Sums are float32, rounded after each product, in an order of their
// own; denormal values count as zeros. It needs [SupportedHalves].
func Halves(dst [][32]float32, most *[32]float32, rows []uint16, dim int, panel []uint16, factors []float32) {
	halves(&dst[0], most, &rows[0], len(dst), dim, &panel[0], unsafe.SliceData(factors), &configs[0])
}
