package portable

import "github.com/plaid-ir/plaid/kernels"

// tokenBlock is the number of tokens whose sums are computed together.
const tokenBlock = 64

// zeroProduct is what maxProducts makes of a product of 0.
const zeroProduct = 1 << 30

// MaxFast raises best[i], no less than −2³⁰, to the largest products, over the
// tokens of ranges[i], of the factor and 32768 less than the 16-bit lanes of
// scores[code] + Σ tables.
func MaxFast(best [][32]int32, ranges [][2]uint32, tables []byteTable, scores []row,
	codes []byte, codeBytes int, residuals, factors []byte, scales []uint32) {
	var acc [tokenBlock]row
	c := kernels.Chunk{Codes: codes, CodeBytes: codeBytes, Residuals: residuals, Factors: factors}
	for i, r := range ranges {
		var m [2 * len(row{})]uint64 // pairs of products + zeroProduct
		for j, v := range best[i] {
			m[j>>1] |= uint64(uint32(v+zeroProduct)) << (j & 1 * 32)
		}
		for t0 := int(r[0]); t0 < int(r[1]); t0 += tokenBlock {
			t1 := min(t0+tokenBlock, int(r[1]))
			fastSums(acc[:t1-t0], tables, scores, &c, t0, scales)
			for t := t0; t < t1; t++ {
				maxProducts(&m, &acc[t-t0], int(c.Factor(t)))
			}
		}
		for j := range best[i] {
			best[i][j] = int32(uint32(m[j>>1]>>(j&1*32))) - zeroProduct
		}
	}
}

// fastSums writes 32768 + (S + a·⟨g ⊙ q, w⟩)/unit of consecutive tokens.
func fastSums(acc []row, tables []byteTable, scores []row, c *kernels.Chunk, t0 int, scales []uint32) {
	rowBytes := len(tables)
	residuals := c.Residuals[t0*rowBytes : (t0+len(acc))*rowBytes]
	if scales == nil {
		for i := range acc {
			acc[i] = scores[c.Code(t0+i)]
		}
		Accumulate(acc, tables, residuals, rowBytes)
		return
	}
	clear(acc)
	Accumulate(acc, tables, residuals, rowBytes)
	for i := range acc {
		code := c.Code(t0 + i)
		a, base := uint64(scales[code]), &scores[code]
		for w, v := range acc[i] {
			even := (v & even16) * a >> 16 & even16
			odd := (v >> 16 & even16) * a &^ even16
			acc[i][w] = (even | odd) + base[w]
		}
	}
}

// maxProducts raises best to factor·(lane − 32768) + zeroProduct, which is
// positive and below 2³¹, of each lane.
func maxProducts(best *[16]uint64, sums *row, factor int) {
	if factor < 0 {
		maxNegative(best, sums, uint64(-factor))
		return
	}
	f := uint64(factor)
	add := (zeroProduct - f<<15) * lanes32
	for w, v := range sums {
		best[w] = max32(best[w], (v&even16)*f+add)
		best[8+w] = max32(best[8+w], (v>>16&even16)*f+add)
	}
}

// maxNegative is maxProducts for the factor −f: −f·x = f·(−x).
func maxNegative(best *[16]uint64, sums *row, f uint64) {
	add := (zeroProduct - f<<15) * lanes32
	for w, v := range sums {
		best[w] = max32(best[w], (lanes32<<16-v&even16)*f+add)
		best[8+w] = max32(best[8+w], (lanes32<<16-v>>16&even16)*f+add)
	}
}
