package codec

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// pack packs bucket numbers into the first kernels.RowBytes(len(buckets), nbits) bytes of dst, as fields of
// nbits (1, 2, 4 or 8): field j is at bit j·nbits, least significant bit first. Higher bits of a number are
// ignored. Unused bits of the last byte are 0.
func pack(dst []byte, buckets []uint8, nbits int) {
	dst = dst[:kernels.RowBytes(len(buckets), nbits)]
	n := len(buckets)
	i := 0
	switch nbits {
	case 8:
		copy(dst, buckets)
		return
	case 4:
		for ; 2*i+2 <= n; i++ {
			b := buckets[2*i : 2*i+2 : 2*i+2]
			dst[i] = b[0]&15 | b[1]<<4
		}
	case 2:
		for ; 4*i+4 <= n; i++ {
			b := buckets[4*i : 4*i+4 : 4*i+4]
			dst[i] = b[0]&3 | b[1]&3<<2 | b[2]&3<<4 | b[3]<<6
		}
	case 1:
		for ; 8*i+8 <= n; i++ {
			b := buckets[8*i : 8*i+8 : 8*i+8]
			dst[i] = b[0]&1 | b[1]&1<<1 | b[2]&1<<2 | b[3]&1<<3 |
				b[4]&1<<4 | b[5]&1<<5 | b[6]&1<<6 | b[7]<<7
		}
	}
	if i < len(dst) { // the fields of the last, incomplete byte
		dst[i] = 0
		for j, b := range buckets[i*(8/nbits):] {
			dst[i] |= b & (1<<nbits - 1) << (j * nbits)
		}
	}
}

// byteTable returns the weights of the 8/nbits fields of each byte.
func byteTable(weights []float32, nbits int) []float32 {
	fields := 8 / nbits
	lut := make([]float32, 0, 256*fields)
	for p := range 256 {
		for i := range fields {
			lut = append(lut, weights[p>>(i*nbits)&(1<<nbits-1)])
		}
	}
	return lut
}

// bucketer finds the bucket of a value: the number of cuts strictly below it.
type bucketer struct {
	cuts []float32 // 2ⁿ−1, not decreasing
}

// midpoints returns cuts for which the bucket of a float32 value is the nearest weight, the lower one on ties,
// and reports whether the weights ascend, where equal ones may follow each other. A midpoint that is not a
// float32 is rounded down, which does not change the bucket of any float32.
func midpoints(weights []float32) (cuts []float32, ascending bool) {
	cuts = make([]float32, len(weights)-1)
	ascending = true
	for b := range cuts {
		lo, hi := weights[b], weights[b+1]
		ascending = ascending && lo <= hi
		mid := (float64(lo) + float64(hi)) / 2
		c := float32(mid)
		if float64(c) > mid {
			c = math.Nextafter32(c, float32(math.Inf(-1)))
		}
		cuts[b] = c
	}
	return cuts, ascending
}

// bucketRow sets dst to the bucket of each value of x.
func (b *bucketer) bucketRow(dst []uint8, x []float32) {
	dst = dst[:len(x)]
	switch {
	case len(b.cuts) == 1:
		c := b.cuts[0]
		for j, v := range x {
			dst[j] = isAbove(v, c)
		}
	case len(b.cuts) == 3:
		c0, c1, c2 := b.cuts[0], b.cuts[1], b.cuts[2]
		for j, v := range x {
			dst[j] = isAbove(v, c0) + isAbove(v, c1) + isAbove(v, c2)
		}
	default:
		for j, v := range x {
			dst[j] = b.bucketOf(v)
		}
	}
}

// isAbove returns 1 if v is above the cut, otherwise 0. It compiles to a comparison without a branch.
func isAbove(v, cut float32) uint8 {
	if v > cut {
		return 1
	}
	return 0
}

// bucketOf returns the bucket of v by binary search.
func (b *bucketer) bucketOf(v float32) uint8 {
	lo, hi := 0, len(b.cuts)
	for lo < hi {
		if m := (lo + hi) / 2; v > b.cuts[m] {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return uint8(lo)
}

// DecodeTokens decodes the tokens of a chunk from from on and before to into dst, (to−from)·Dim values. The
// chunk must be valid for the codec (kernels.Chunk.Validate).
func (c *Quantizer) DecodeTokens(dst []float32, ch *kernels.Chunk, from, to int) {
	rowBytes := c.RowBytes()
	for t := from; t < to; t++ {
		y := dst[(t-from)*c.Dim : (t-from+1)*c.Dim]
		code := ch.Code(t)
		c.kernel.Centroids.Rows(y, int(code), int(code)+1)
		c.addResidual(y, code, ch.Residuals[t*rowBytes:(t+1)*rowBytes])
		f := c.kernel.Factor(ch.Factor(t))
		for j := range y {
			y[j] *= f
		}
	}
}

// addResidual adds a_code·(g ⊙ w[b]) to y. The conversions keep compilers from fusing product and sum, so
// that every machine decodes to the same bits.
func (c *Quantizer) addResidual(y []float32, code uint32, packed []byte) {
	fields := 8 / c.Nbits // of a byte
	a, g := c.centroidScale(code), c.kernel.DimScale
	// With scales.
	if g != nil || a != 1 {
		for i, p := range packed {
			row := c.lut[int(p)*fields : (int(p)+1)*fields]
			for j := i * fields; j < min((i+1)*fields, len(y)); j++ {
				s := a
				if g != nil {
					s *= g[j]
				}
				y[j] += float32(s * row[j-i*fields])
			}
		}
		return
	}
	// Without scales: four fields at a time for 2 bits, and then the remaining ones.
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
		n := min(fields, len(y))
		row := c.lut[int(packed[0])*fields:][:n]
		for j := range row {
			y[j] += row[j]
		}
		y = y[n:]
	}
}
