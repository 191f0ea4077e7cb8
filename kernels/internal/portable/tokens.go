// Package portable has the inner loops in plain Go. Tiers without a faster loop use them,
// and the loops of other tiers must give the same bits. Package tier specifies each
// function at the field of its name.
//
// The loops use SWAR ("SIMD within a register"): several small integers in the lanes of
// a uint64. Sums are arranged so that no lane overflows, so one addition adds all lanes.
// Where the compiler could fuse a product with a sum, a conversion rounds the product
// first, so that results are the same on every machine.
package portable

import (
	"encoding/binary"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
)

const (
	even16  = 0x0000_ffff_0000_ffff // mask of 16-bit lanes 0 and 2
	lanes32 = 0x0000_0001_0000_0001 // 1 in each 32-bit lane
	top8    = 0x8080_8080_8080_8080 // the top bit of each 8-bit lane
	top32   = 0x8000_0000_8000_0000 // the top bit of each 32-bit lane
)

// A tableRow is eight words, one cache line: 32 lanes of 16 bits or 16 of 32. A
// byteTable has a row for each value of a byte.
type (
	tableRow  = [8]uint64
	byteTable = [256]tableRow
	byteRow   = [4]uint64 // 32 bytes
)

// maxLanes8 returns the maxima of 8-bit lanes whose top bits are 0.
func maxLanes8(a, b uint64) uint64 {
	// m has the top bit of the lanes in which a ≥ b, and m − m>>7 ones below it.
	m := ((a | top8) - b) & top8
	return b ^ (a^b)&(m-m>>7)
}

// maxLanes32 returns the maxima of 32-bit lanes whose top bits are 0.
func maxLanes32(a, b uint64) uint64 {
	m := ((a | top32) - b) & top32
	return b ^ (a^b)&(m-m>>31)
}

// Products of float32 vectors. Each is one chain of additions in the order of the
// dimensions in all of the functions below, so the same pair of vectors gives the same
// bits everywhere: in any block, on any machine. Dots fuses product and sum, as loops
// with vector instructions do. The others, for which there are no such loops, round both:
// the conversion prevents fusing.
//
// The Go compiler keeps one of 16 registers for itself and needs one for each product
// being computed, so four chains fit and eight spill: a 2×2 tile reaches 15 GFLOP/s, a
// 4×2 tile only 6 (Zen 5).

// Dots writes dst[r·stride+s] = ⟨row r, query s⟩ for m rows of dim values and the
// first n columns of a panel [dim, 32], followed by zeros up to a multiple of 8 columns. It
// widens the ranges lo to hi of the first n columns.
func Dots(dst []float32, stride int, rows []float32, m, dim int, panel []float32, n int, lo, hi []float32) {
	var c [2 * 32]float32
	for r := 0; r < m; r += 2 {
		next := min(1, m-1-r) * dim // 0 computes the last row twice
		floats.Products(c[:], 32, rows[r*dim:], next, 2, dim, panel, noBias[:], 32)
		for i := range min(2, m-r) {
			copy(dst[(r+i)*stride:], c[32*i:32*i+(n+7)&^7])
			for j, v := range c[32*i : 32*i+n] {
				if v < lo[j] {
					lo[j] = v
				}
				if v > hi[j] {
					hi[j] = v
				}
			}
		}
	}
}

// DotsOne writes dst[j] = ⟨x, b_j⟩.
func DotsOne(dst, x, b []float32) {
	dim := len(x)
	row := func(j int) []float32 { return b[j*dim : (j+1)*dim] }
	j := 0
	for ; j+4 <= len(dst); j += 4 {
		dst[j], dst[j+1], dst[j+2], dst[j+3] = Dot1x4(x, row(j), row(j+1), row(j+2), row(j+3))
	}
	for ; j < len(dst); j++ {
		dst[j], _, _, _ = Dot1x4(x, row(j), row(j), row(j), row(j))
	}
}

// Dot2x2 returns the products of two vectors with two others. It is not inlined, because
// its loop would share registers with the caller's and be a third slower.
//
//go:noinline
func Dot2x2(a0, a1, b0, b1 []float32) (s00, s01, s10, s11 float32) {
	n := len(a0)
	a1, b0, b1 = a1[:n], b0[:n], b1[:n]
	for k := range a0 {
		x, y := b0[k], b1[k]
		v, w := a0[k], a1[k]
		s00 += float32(v * x)
		s01 += float32(v * y)
		s10 += float32(w * x)
		s11 += float32(w * y)
	}
	return
}

// Dot1x4 returns the products of x with four vectors.
//
//go:noinline
func Dot1x4(x, b0, b1, b2, b3 []float32) (s0, s1, s2, s3 float32) {
	n := len(x)
	b0, b1, b2, b3 = b0[:n], b1[:n], b2[:n], b3[:n]
	for k, v := range x {
		s0 += float32(b0[k] * v)
		s1 += float32(b1[k] * v)
		s2 += float32(b2[k] * v)
		s3 += float32(b3[k] * v)
	}
	return
}

// Above implements tier.Tokens.Above.
func Above(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int {
	found := 0
	for r := range rows {
		for i, v := range scores[r*stride:][:n] {
			if v > limits[i] {
				rows[found] = uint32(r)
				found++
				break
			}
		}
	}
	return found
}

// Bytes implements tier.Tokens.Bytes.
func Bytes(dst []byteRow, scores []float32, stride, n int, mul, add *[32]float32) {
	for c := range dst {
		var r byteRow
		for i, v := range scores[c*stride : c*stride+n] {
			b := int32(float32(v*mul[i&31]) + add[i&31])
			r[i>>3&3] |= uint64(min(max(b, 0), 127)) << (i & 7 * 8)
		}
		dst[c] = r
	}
}

// Words implements tier.Tokens.Words.
func Words(dst []tableRow, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32) {
	for c := range dst {
		a := float32(1)
		if scales != nil {
			a = scales[c]
		}
		var r tableRow
		for i, v := range scores[c*stride : c*stride+n] {
			r[i>>2&7] |= uint64(uint16(int32(float32(v*mul[i&31])+float32(a*low[i&31])+bias))) << (i & 3 * 16)
		}
		dst[c] = r
	}
}

// Accumulate implements tier.Tokens.Accumulate. It adds the entries of eight tables at a
// time (128 KiB, which stays in L2) for the whole block of vectors, so that large sets of
// tables do not stream through the cache once for each vector.
func Accumulate(acc []tableRow, tables []byteTable, vectors []byte, stride int) {
	if len(acc) == 0 {
		return
	}
	p := 0
	for ; p+8 <= len(tables); p += 8 {
		accumulate8(acc, (*[8]byteTable)(tables[p:]), vectors[p:], stride)
	}
	for ; p < len(tables); p++ {
		accumulate1(acc, &tables[p], vectors[p:], stride)
	}
}

// accumulate8 is Accumulate for eight tables.
func accumulate8(acc []tableRow, t *[8]byteTable, vectors []byte, stride int) {
	for i := range acc {
		a := &acc[i]
		b := (*[8]byte)(vectors[i*stride:])
		r0, r1, r2, r3 := &t[0][b[0]], &t[1][b[1]], &t[2][b[2]], &t[3][b[3]]
		r4, r5, r6, r7 := &t[4][b[4]], &t[5][b[5]], &t[6][b[6]], &t[7][b[7]]
		a[0] += r0[0] + r1[0] + r2[0] + r3[0] + r4[0] + r5[0] + r6[0] + r7[0]
		a[1] += r0[1] + r1[1] + r2[1] + r3[1] + r4[1] + r5[1] + r6[1] + r7[1]
		a[2] += r0[2] + r1[2] + r2[2] + r3[2] + r4[2] + r5[2] + r6[2] + r7[2]
		a[3] += r0[3] + r1[3] + r2[3] + r3[3] + r4[3] + r5[3] + r6[3] + r7[3]
		a[4] += r0[4] + r1[4] + r2[4] + r3[4] + r4[4] + r5[4] + r6[4] + r7[4]
		a[5] += r0[5] + r1[5] + r2[5] + r3[5] + r4[5] + r5[5] + r6[5] + r7[5]
		a[6] += r0[6] + r1[6] + r2[6] + r3[6] + r4[6] + r5[6] + r6[6] + r7[6]
		a[7] += r0[7] + r1[7] + r2[7] + r3[7] + r4[7] + r5[7] + r6[7] + r7[7]
	}
}

// accumulate1 is Accumulate for one table.
func accumulate1(acc []tableRow, t *byteTable, vectors []byte, stride int) {
	for i := range acc {
		a, r := &acc[i], &t[vectors[i*stride]]
		for w := range a {
			a[w] += r[w]
		}
	}
}

// Compose implements tier.Tokens.Compose.
func Compose(t *byteTable, lo, hi *[16]tableRow) {
	for b := range t {
		x, y, z := &lo[b&15], &hi[b>>4&15], &t[b]
		z[0], z[1], z[2], z[3] = x[0]+y[0], x[1]+y[1], x[2]+y[2], x[3]+y[3]
		z[4], z[5], z[6], z[7] = x[4]+y[4], x[5]+y[5], x[6]+y[6], x[7]+y[7]
	}
}

// MaxBytes implements tier.Tokens.MaxBytes.
func MaxBytes(best []byteRow, ranges [][2]uint32, rows []byteRow, codes []byte, codeBytes int) {
	for i, r := range ranges {
		lo, hi := int(r[0])*codeBytes, int(r[1])*codeBytes
		if codeBytes == 2 {
			maxRows16(&best[i], rows, codes[lo:hi])
		} else {
			maxRows32(&best[i], rows, codes[lo:hi])
		}
	}
}

// maxRows16 raises best to the rows of codes of 2 bytes.
func maxRows16(best *byteRow, rows []byteRow, codes []byte) {
	m0, m1, m2, m3 := best[0], best[1], best[2], best[3]
	for ; len(codes) >= 2; codes = codes[2:] {
		r := &rows[binary.LittleEndian.Uint16(codes)]
		m0, m1 = maxLanes8(m0, r[0]), maxLanes8(m1, r[1])
		m2, m3 = maxLanes8(m2, r[2]), maxLanes8(m3, r[3])
	}
	*best = byteRow{m0, m1, m2, m3}
}

// maxRows32 raises best to the rows of codes of 4 bytes.
func maxRows32(best *byteRow, rows []byteRow, codes []byte) {
	m0, m1, m2, m3 := best[0], best[1], best[2], best[3]
	for ; len(codes) >= 4; codes = codes[4:] {
		r := &rows[binary.LittleEndian.Uint32(codes)]
		m0, m1 = maxLanes8(m0, r[0]), maxLanes8(m1, r[1])
		m2, m3 = maxLanes8(m2, r[2]), maxLanes8(m3, r[3])
	}
	*best = byteRow{m0, m1, m2, m3}
}

// tokenBlock is the number of tokens whose sums are computed together.
const tokenBlock = 64

// zeroProduct is added to products, so that the lanes of maxProducts are never negative.
const zeroProduct = 1 << 30

// MaxFast implements tier.Tokens.MaxFast.
func MaxFast(best [][32]int32, ranges [][2]uint32, tables []byteTable, scores []tableRow,
	codes []byte, codeBytes int, residuals, factors []byte, scales []uint32) {
	var acc [tokenBlock]tableRow
	c := kernels.Chunk{Codes: codes, CodeBytes: codeBytes, Residuals: residuals, Factors: factors}
	for i, r := range ranges {
		var m [2 * len(tableRow{})]uint64 // pairs of products + zeroProduct
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
func fastSums(acc []tableRow, tables []byteTable, scores []tableRow, c *kernels.Chunk, t0 int, scales []uint32) {
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

// maxProducts raises best to factor·(lane − 32768) + zeroProduct for each lane. The products
// are within ±2³⁰, so the sum is positive and below 2³¹.
func maxProducts(best *[16]uint64, sums *tableRow, factor int) {
	if factor < 0 {
		maxNegative(best, sums, uint64(-factor))
		return
	}
	f := uint64(factor)
	add := (zeroProduct - f<<15) * lanes32
	for w, v := range sums {
		best[w] = maxLanes32(best[w], (v&even16)*f+add)
		best[8+w] = maxLanes32(best[8+w], (v>>16&even16)*f+add)
	}
}

// maxNegative is maxProducts for the factor −f, by −f·x = f·(−x).
func maxNegative(best *[16]uint64, sums *tableRow, f uint64) {
	add := (zeroProduct - f<<15) * lanes32
	for w, v := range sums {
		best[w] = maxLanes32(best[w], (lanes32<<16-v&even16)*f+add)
		best[8+w] = maxLanes32(best[8+w], (lanes32<<16-v>>16&even16)*f+add)
	}
}

// MaxFine implements tier.Tokens.MaxFine.
func MaxFine(best [][16]float32, ranges [][2]uint32, tables []byteTable, scores []float32,
	codes []byte, codeBytes int, residuals, factors []byte, scales []float32,
	stride, n int, mid, unit *[16]float32) {
	var acc [tokenBlock]tableRow
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
func maxScores(best []float32, sums *tableRow, scores, mid, unit []float32, a, factor float32) {
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
