package portable

import "github.com/plaid-ir/plaid/kernels"

// MaxFine raises best[i] to the largest products, over the tokens of ranges[i], of
// the factor and scores[code·stride+lane] + a·(mid + unit·(Σ tables − 2³¹)).
func MaxFine(best [][16]float32, ranges [][2]uint32, tables []byteTable, scores []float32,
	codes []byte, codeBytes int, residuals, factors []byte, scales []float32,
	stride, n int, mid, unit *[16]float32) {
	var acc [tokenBlock]row
	c := kernels.Chunk{Codes: codes, CodeBytes: codeBytes, Residuals: residuals, Factors: factors}
	rowBytes := len(tables)
	for i, r := range ranges {
		for t0 := int(r[0]); t0 < int(r[1]); t0 += tokenBlock {
			t1 := min(t0+tokenBlock, int(r[1]))
			sums := acc[:t1-t0]
			clear(sums)
			Accumulate(sums, tables, residuals[t0*rowBytes:t1*rowBytes], rowBytes)
			for t := t0; t < t1; t++ {
				code, a := int(c.Code(t)), float32(1)
				if scales != nil {
					a = scales[code]
				}
				maxScores(best[i][:n], &acc[t-t0], scores[code*stride:code*stride+n], mid[:n], unit[:n],
					a, float32(c.Factor(t)))
			}
		}
	}
}

// maxScores raises best to factor·(score + a·(mid + unit·(sum − 2³¹))).
func maxScores(best []float32, sums *row, scores, mid, unit []float32, a, factor float32) {
	n := len(best)
	scores, mid, unit = scores[:n], mid[:n], unit[:n]
	for i := range best {
		sum := int32(uint32(sums[i>>1&7]>>(i&1*32)) ^ 1<<31)
		r := mid[i] + float32(unit[i]*float32(sum))
		if v := float32(factor * (scores[i] + float32(a*r))); v > best[i] {
			best[i] = v
		}
	}
}
