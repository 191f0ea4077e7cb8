// Package tiletest has the matrix products of tier amx in plain Go, so that what
// is around them can be tested on any processor, and they themselves on theirs.
package tiletest

import (
	"encoding/binary"

	"github.com/plaid-ir/plaid/kernels/amx"
)

// Rerank does in plain Go what [amx.Rerank.Run] does, for the given dimension.
func Rerank(r *amx.Rerank, dim int) {
	layout, _ := amx.NewLayout(dim, r.Nbits)
	for _, b := range r.Planned() {
		codes, residuals, factors, first := r.Codes, r.Residuals, r.Factors, int(b.First)
		if b.First&amx.InShort != 0 {
			codes, residuals, factors, first = r.ShortCodes, r.ShortResiduals, r.ShortFactors, int(b.First&^amx.InShort)
		}
		for t := first; t < first+amx.BlockTokens; t++ {
			code := int(binary.LittleEndian.Uint16(codes[r.CodeBytes*t:]))
			if r.CodeBytes == 4 {
				code = int(binary.LittleEndian.Uint32(codes[4*t:]))
			}
			factor := int32(int16(binary.LittleEndian.Uint16(factors[2*t:])))
			products := multiply(r, layout, residuals[t*r.RowBytes:(t+1)*r.RowBytes])
			best := &r.Best[b.Doc]
			for half := range 2 {
				for column := range 16 {
					lane := amx.Lane(half, column)
					v := saturate(products[half][column] >> r.Shift[half][column])
					if r.Scales != nil {
						v = highRounded(v, int32(int16(r.Scales[code])))
					}
					v = saturate(v + int32(int16(r.Scores[code][lane/4]>>(lane%4*16))))
					best[lane] = max(best[lane], int16(highRounded(v, factor)))
				}
			}
		}
	}
}

// multiply returns the products of a residual with the query.
func multiply(r *amx.Rerank, layout amx.Layout, residual []byte) (products [2][16]int32) {
	for block := range layout.Blocks() {
		for m := range 64 {
			bit := layout.Decoded(block, m) * r.Nbits
			high, low := amx.Parts(r.Nbits, residual[bit/8]>>(bit%8)&byte(1<<r.Nbits-1))
			for half := range products {
				for column := range products[half] {
					at := amx.TileAt(block, half, column, m)
					products[half][column] += int32(high)*int32(int8(r.Tiles[at])) + int32(low)*int32(int8(r.Tiles[at+amx.LowTile]))
				}
			}
		}
	}
	return products
}

func saturate(v int32) int32 { return min(max(v, -1<<15), 1<<15-1) }

// highRounded is VPMULHRSW.
func highRounded(a, b int32) int32 { return int32(int16((a*b>>14 + 1) >> 1)) }
