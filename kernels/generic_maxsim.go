package kernels

import "math"

// tokenBlock is the number of tokens whose sums are computed together.
const tokenBlock = 64

// MaxSim implements [Scorer].
func (s *scorer) MaxSim(dst []float32, qs []Query, c *Chunk, docs []uint32, level Level) {
	n := count(c, docs)
	for i := range qs {
		q, out := qs[i].(*query), dst[i*n:(i+1)*n]
		switch {
		case q.byLevels(level):
			q.ensure(builtLevels+int(level), func(q *query) { q.buildLevels(level) })
			s.maxSimLevels(out, q, c, docs, level)
		case level == Fine && q.tabled(fineGroup):
			q.ensure(builtFine, (*query).buildFine)
			s.maxSimFine(out, q, c, docs)
		case level != Fine && s.tiled():
			q.ensure(builtFast, (*query).buildTiles)
			s.maxSimTiles(out, q, c, docs)
		case level != Fine && q.tabled(fastGroup):
			q.ensure(builtFast, (*query).buildFast)
			s.maxSimFast(out, q, c, docs)
		default:
			s.maxSimFloat(out, q, c, docs)
		}
	}
}

// zeroProduct is what maxProducts makes of a product of 0.
const zeroProduct = 1 << 30

// maxSimFast computes with integers throughout: sums of 16 bits, products with
// the factor of 31 bits, whose maxima are exact.
func (s *scorer) maxSimFast(dst []float32, q *query, c *Chunk, docs []uint32) {
	sc, size := s.scratch.Get().(*scratch), callSize(s.rowBytes)
	f, k := &q.fast, s.codec.Centroids.K
	for i := 0; i < len(dst); {
		ranges := sc.batch(c, docs, i, len(dst), size)
		best, sums := sc.fast[:len(ranges)], sc.sums[:len(ranges)]
		clear(sums)
		for g := 0; g*fastGroup < q.n; g++ {
			for j := range best {
				best[j] = noProducts
			}
			for j := 0; ; j++ {
				part := sc.part(ranges, j, size)
				if part == nil {
					break
				}
				s.p.maxFast(best, part, f.tables[g*s.rowBytes:(g+1)*s.rowBytes], f.scores[g*k:(g+1)*k],
					c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.scale16)
			}
			for j := range best {
				sums[j] += q.fastScore(&best[j], g*fastGroup)
			}
		}
		for j, r := range ranges {
			dst[i+j] = 0
			if r[0] < r[1] {
				dst[i+j] = float32(sums[j])
			}
		}
		i += len(ranges)
	}
	s.scratch.Put(sc)
}

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

// fastScore adds up the best products of the query tokens from first on.
func (q *query) fastScore(best *[fastGroup]int32, first int) (score float64) {
	for i := range min(fastGroup, q.n-first) {
		product := best[i&1*16+i>>1&15]
		score += float64(float64(q.weights[first+i]) * q.ranges[first+i].fast * float64(product))
	}
	return score * float64(q.s.codec.FactorMax) / 32767
}

// maxSimFine sums the residual part in 32 bits and does the rest in float32.
func (s *scorer) maxSimFine(dst []float32, q *query, c *Chunk, docs []uint32) {
	sc, size := s.scratch.Get().(*scratch), callSize(s.rowBytes)
	f := &q.fine
	for i := 0; i < len(dst); {
		ranges := sc.batch(c, docs, i, len(dst), size)
		best, sums := sc.fine[:len(ranges)], sc.sums[:len(ranges)]
		clear(sums)
		for g := 0; g*fineGroup < q.n; g++ {
			n := min(fineGroup, q.n-g*fineGroup)
			for j := range best {
				best[j] = noScores
			}
			for j := 0; ; j++ {
				part := sc.part(ranges, j, size)
				if part == nil {
					break
				}
				s.p.maxFine(best, part, f.tables[g*s.rowBytes:(g+1)*s.rowBytes], q.scores[g*fineGroup:],
					c.Codes, c.CodeBytes, c.Residuals, c.Factors, s.codec.CentroidScale,
					q.stride, n, &f.mid[g], &f.unit[g])
			}
			for j := range best {
				sums[j] += q.floatScore(best[j][:n], g*fineGroup)
			}
		}
		for j, r := range ranges {
			dst[i+j] = 0
			if r[0] < r[1] {
				dst[i+j] = float32(sums[j])
			}
		}
		i += len(ranges)
	}
	s.scratch.Put(sc)
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

// floatScore adds up best products with factors still in stored units.
func (q *query) floatScore(best []float32, first int) (score float64) {
	for i, v := range best {
		score += float64(float64(q.weights[first+i]) * float64(v))
	}
	return score * float64(q.s.codec.FactorMax) / 32767
}

// maxSimFloat decodes each token and multiplies: for codecs and queries whose
// tables would be too large.
func (s *scorer) maxSimFloat(dst []float32, q *query, c *Chunk, docs []uint32) {
	sc := s.scratch.Get().(*scratch)
	sc.floats, sc.lo, sc.hi = resize(sc.floats, s.dim), resize(sc.lo, q.n), resize(sc.hi, q.n)
	products, best := sc.lo, sc.hi
	for i := range dst {
		lo, hi := tokens(c, docs, i)
		for j := range best {
			best[j] = float32(math.Inf(-1))
		}
		for t := lo; t < hi; t++ {
			s.unpack(sc.floats, c.Residuals[t*s.rowBytes:(t+1)*s.rowBytes])
			dotsOne(products, sc.floats, q.vectors)
			code, a := int(c.Code(t)), float32(1)
			if s.codec.CentroidScale != nil {
				a = s.codec.CentroidScale[code]
			}
			factor := float32(c.Factor(t))
			scores := q.scores[code*q.stride:]
			for j, r := range products {
				if v := float32(factor * (scores[j] + float32(a*r))); v > best[j] {
					best[j] = v
				}
			}
		}
		dst[i] = 0
		if lo < hi {
			dst[i] = float32(q.floatScore(best, 0))
		}
	}
	s.scratch.Put(sc)
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
