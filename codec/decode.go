package codec

import "github.com/plaid-ir/plaid/kernels"

// DecodeTokens writes the decoded vectors of the tokens from to to (exclusive)
// of a chunk into dst, (to−from)·Dim values. The chunk must fit the codec
// (kernels.Chunk.Validate).
func (c *Quantizer) DecodeTokens(dst []float32, ch *kernels.Chunk, from, to int) {
	rb := c.RowBytes()
	for t := from; t < to; t++ {
		y := dst[(t-from)*c.Dim : (t-from+1)*c.Dim]
		code := ch.Code(t)
		c.kernel.Centroids.Rows(y, int(code), int(code)+1)
		c.addResidual(y, code, ch.Residuals[t*rb:(t+1)*rb])
		f := c.kernel.Factor(ch.Factor(t))
		for j := range y {
			y[j] *= f
		}
	}
}

// addResidual adds a_code·(g ⊙ w[b]) to y. The conversions keep compilers from
// fusing product and sum, so that every machine decodes alike.
func (c *Quantizer) addResidual(y []float32, code uint32, packed []byte) {
	per := 8 / c.Nbits
	a, g := c.scale(code), c.kernel.DimScale
	if g != nil || a != 1 {
		for i, p := range packed {
			row := c.lut[int(p)*per : (int(p)+1)*per]
			for j := i * per; j < min((i+1)*per, len(y)); j++ {
				s := a
				if g != nil {
					s *= g[j]
				}
				y[j] += float32(s * row[j-i*per])
			}
		}
		return
	}
	if c.Nbits == 2 {
		for ; len(y) >= 4; y, packed = y[4:], packed[1:] {
			row := c.lut[int(packed[0])*4 : int(packed[0])*4+4 : int(packed[0])*4+4]
			out := y[:4:4]
			out[0] += row[0]
			out[1] += row[1]
			out[2] += row[2]
			out[3] += row[3]
		}
	}
	for ; len(y) > 0; packed = packed[1:] {
		n := min(per, len(y))
		row := c.lut[int(packed[0])*per:][:n]
		for j := range row {
			y[j] += row[j]
		}
		y = y[n:]
	}
}
