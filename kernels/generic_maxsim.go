package kernels

import "math"

// tokenBlock is the number of tokens whose sums are computed together.
const tokenBlock = 64

// zeroProduct is what maxProducts makes of a product of 0.
const zeroProduct = 1 << 30

// noProducts is no larger than any products.
var noProducts = func() (p [fastGroup]int32) {
	for i := range p {
		p[i] = -zeroProduct
	}
	return p
}()

// maxFast is the portable loop of prims.maxFast.
func maxFast(best [][fastGroup]int32, ranges [][2]uint32, tables []byteTable, scores []row,
	codes []byte, codeBytes int, residuals, factors []byte, scales []uint32) {
	var acc [tokenBlock]row
	c := Chunk{Codes: codes, CodeBytes: codeBytes, Residuals: residuals, Factors: factors}
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
func fastSums(acc []row, tables []byteTable, scores []row, c *Chunk, t0 int, scales []uint32) {
	rowBytes := len(tables)
	residuals := c.Residuals[t0*rowBytes : (t0+len(acc))*rowBytes]
	if scales == nil {
		for i := range acc {
			acc[i] = scores[c.Code(t0+i)]
		}
		accumulate(acc, tables, residuals, rowBytes)
		return
	}
	clear(acc)
	accumulate(acc, tables, residuals, rowBytes)
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

// noScores is no larger than any products.
var noScores = func() (p [fineGroup]float32) {
	for i := range p {
		p[i] = float32(math.Inf(-1))
	}
	return p
}()

// maxFine is the portable loop of prims.maxFine.
func maxFine(best [][fineGroup]float32, ranges [][2]uint32, tables []byteTable, scores []float32,
	codes []byte, codeBytes int, residuals, factors []byte, scales []float32,
	stride, n int, mid, unit *[fineGroup]float32) {
	var acc [tokenBlock]row
	c := Chunk{Codes: codes, CodeBytes: codeBytes, Residuals: residuals, Factors: factors}
	rowBytes := len(tables)
	for i, r := range ranges {
		for t0 := int(r[0]); t0 < int(r[1]); t0 += tokenBlock {
			t1 := min(t0+tokenBlock, int(r[1]))
			sums := acc[:t1-t0]
			clear(sums)
			accumulate(sums, tables, residuals[t0*rowBytes:t1*rowBytes], rowBytes)
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

// unpack writes g ⊙ w[b] of a packed residual.
func (s *scorer) unpack(dst []float32, residual []byte) {
	nbits := s.codec.Codebook.Nbits
	mask := byte(1<<nbits - 1)
	per := 8 / nbits
	for p, b := range residual {
		out := dst[p*per : min((p+1)*per, len(dst))]
		for j := range out {
			out[j] = s.weights[b&mask]
			b >>= nbits
		}
	}
	for j, g := range s.codec.DimScale {
		dst[j] *= g
	}
}

// ErrorBound implements [Scorer]. Over the query tokens it adds up |weight| ·
// the largest factor · the errors of: S in float32, (d+1)·2⁻²⁴·‖q‖·max‖c‖; the
// residual part, at level Fast a unit for each residual byte (two nibbles
// rounded to half a unit) and three for the roundings of S, scale and result,
// a unit being (max|S| + max a·max|⟨g ⊙ q, w⟩|) / (32764 − residual bytes), at
// level Fine the same with units of 2⁻³² of the range of ⟨g ⊙ q, w⟩ and the
// rounding of float32 arithmetic; with products of bytes, what rounding the
// query may have changed instead (levelQuery, tileError). The roundings mostly
// cancel: the errors that occur are some fifty times smaller.
func (s *scorer) ErrorBound(prepared Query, level Level) float32 {
	q := prepared.(*query)
	const eps = 0x1p-24
	normMax, rowBytes := s.normMax(), float64(s.rowBytes)
	a := max(s.aMax, -s.aMin)
	if level != Fine && s.tiled() {
		q.ensure(builtFast, (*query).buildTiles)
	}
	var sum float64
	for i, r := range q.ranges {
		product := r.norm*normMax + a*r.abs // bounds the product and its parts
		e := (float64(s.dim) + 8) * eps * r.norm * normMax
		switch {
		case s.codec.Codebook.Uniform() && (q.byLevels(level) || level == Fine && q.tabled(fineGroup)):
			e += a*r.rounding[level] + 16*eps*product
		case level == Fine && q.tabled(fineGroup):
			e += a*r.fine*(rowBytes+3) + 12*eps*product
		case level != Fine && s.tiled():
			e += q.tileError(i) + 8*eps*product
		case level != Fine && q.tabled(fastGroup):
			e += r.fast*(rowBytes+3) + 8*eps*product
		default:
			e += (float64(s.dim)+8)*eps*a*r.abs + 12*eps*product
		}
		sum += math.Abs(float64(q.weights[i])) * (e + eps*product)
	}
	return float32(sum * float64(s.codec.FactorMax) * (1 + 1e-4))
}
