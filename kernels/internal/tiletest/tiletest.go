// Package tiletest computes the matrix products of tier amx in plain Go. Tests of the code
// that calls them run on any processor with it, and tests of the amx tier compare with it.
package tiletest

import (
	"encoding/binary"

	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// token is a stored token with its document.
type token struct {
	doc      uint32
	code     int
	factor   int16
	residual []byte
}

// visitPlanned visits the tokens of the planned blocks of a call. It allocates nothing.
func visitPlanned(c *tiles.Call, visit func(token)) {
	for _, b := range c.Planned() {
		codes, residuals, factors, first := c.Codes, c.Residuals, c.Factors, int(b.First)
		if b.First&tiles.InShort != 0 {
			codes, residuals, factors = c.ShortCodes, c.ShortResiduals, c.ShortFactors
			first = int(b.First &^ tiles.InShort)
		}
		for t := first; t < first+tiles.BlockTokens; t++ {
			code := int(binary.LittleEndian.Uint16(codes[c.CodeBytes*t:]))
			if c.CodeBytes == 4 {
				code = int(binary.LittleEndian.Uint32(codes[4*t:]))
			}
			visit(token{
				doc:      b.Doc,
				code:     code,
				factor:   int16(binary.LittleEndian.Uint16(factors[2*t:])),
				residual: residuals[t*c.RowBytes : (t+1)*c.RowBytes],
			})
		}
	}
}

// Rerank computes a call of amx.Rerank in plain Go, for vectors of dim dimensions.
func Rerank(c *tiles.Call, dim int) {
	layout, _ := tiles.NewLayout(dim, c.Nbits)
	visitPlanned(c, func(t token) {
		products := multiply(c, layout, t.residual)
		best := &c.Best[t.doc]
		for half := range 2 {
			for column := range 16 {
				lane := Lane(half, column)
				v := saturate(products[half][column] >> c.Shift[half][column])
				if c.Scales != nil {
					v = highRounded(v, int32(int16(c.Scales[t.code])))
				}
				v = saturate(v + int32(int16(c.Scores[t.code][lane/4]>>(lane%4*16))))
				best[lane] = max(best[lane], int16(highRounded(v, int32(t.factor))))
			}
		}
	})
}

// multiply returns the products of a residual with the query, by half and column.
//
//go:norace
func multiply(c *tiles.Call, layout tiles.Layout, residual []byte) (products [2][16]int32) {
	for block := range layout.Blocks() {
		for m := range 64 {
			high, low := Parts(c.Nbits, fieldValue(c, layout, residual, block, m))
			for half := range products {
				offset := tiles.ByteOffset(block, half, 0, m)
				for column := range products[half] {
					highPart, lowPart := int8(c.Tiles[offset]), int8(c.Tiles[offset+tiles.LowDistance])
					products[half][column] += int32(high)*int32(highPart) + int32(low)*int32(lowPart)
					offset += 4
				}
			}
		}
	}
	return products
}

// fieldValue returns the field of a residual that is at byte m of a block's operand.
func fieldValue(c *tiles.Call, layout tiles.Layout, residual []byte, block, m int) byte {
	bit := layout.OperandField(block, m) * c.Nbits
	return residual[bit/8] >> (bit % 8) & byte(1<<c.Nbits-1)
}

// saturate limits v to 16 bits.
func saturate(v int32) int32 { return min(max(v, -1<<15), 1<<15-1) }

// highRounded computes VPMULHRSW: a·b/2¹⁵, rounded, in 16 bits.
func highRounded(a, b int32) int32 { return int32(int16((a*b>>14 + 1) >> 1)) }

// Fine computes a call of amx.Fine in plain Go, for vectors of dim dimensions.
func Fine(c *tiles.Fine, dim int) {
	layout, _ := tiles.NewLayout(dim, c.Nbits)
	visitPlanned(&c.Call, func(t token) {
		scale := float32(1)
		if c.RowScales != nil {
			scale = c.RowScales[t.code]
		}
		sums := fieldSums(c, layout, t.residual)
		best := &c.Maxima[t.doc]
		for i := range c.N {
			residual := float32(c.Mid[i] + float32(c.Unit[i]*float32(sums[i])))
			v := float32(float32(t.factor) * float32(c.Rows[t.code*c.Stride+i]+float32(scale*residual)))
			if v > best[i] {
				best[i] = v
			}
		}
	})
}

// fieldSums returns, for each query token, the sum of the products of the fields of a
// residual with the integers of the query.
//
//go:norace
func fieldSums(c *tiles.Fine, layout tiles.Layout, residual []byte) (sums [32]int32) {
	for block := range layout.Blocks() {
		for m := range 64 {
			f := int32(fieldValue(&c.Call, layout, residual, block, m))
			for half := range 2 {
				offset := tiles.ByteOffset(block, half, 0, m)
				halfSums := sums[16*half:][:16]
				for i := range halfSums {
					high, low := int8(c.Tiles[offset]), int8(c.Tiles[offset+tiles.LowDistance])
					halfSums[i] += f * (int32(high)<<8 + int32(low))
					offset += 4
				}
			}
		}
	}
	return sums
}

// Lane returns the query token of a column of a half. Packing 32-bit sums to 16 bits
// interleaves the halves by four; with this order of columns the result is in the order of
// the query tokens.
func Lane(half, column int) int { return 8*(column/4) + 4*half + column%4 }

// Parts returns the two bytes of a field that are multiplied with the high and
// the low part of the query.
func Parts(nbits int, field byte) (high, low byte) {
	if nbits == 8 {
		return field, field >> 4
	}
	return field << (8 - nbits), field
}
