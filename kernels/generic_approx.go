package kernels

import (
	"encoding/binary"
	"math"
)

// approxRows is S with a byte an entry: 7 bits of w_s·S[c][s] above an offset
// of each query token, all in the same unit, so that sums over tokens compare.
// Entries below the offset, which is the mean of the column, are 0: a token
// that matches a query token no better than an average centroid does is
// seldom the best of its document, and the resolution is wanted above.
type approxRows struct {
	rows []row4 // [groups of 32 query tokens, K]
	step float64
	base float64       // sum of the offsets
	mul  [][32]float32 // entry = mul·S + add
	add  [][32]float32
}

// row4 has the bytes of 32 query tokens.
type row4 = [4]uint64

// approxSample is the number of centroids that the means are taken over.
const approxSample = 1024

func (q *query) buildApprox() {
	a, k := &q.approx, q.s.codec.Centroids.K
	groups := (q.n + 31) / 32
	a.rows = resize(a.rows, groups*k)
	a.mul, a.add = resize(a.mul, groups), resize(a.add, groups)
	clear(a.mul)
	clear(a.add)

	var span float64
	a.base = 0
	sample := min(k, approxSample)
	for s, w := range q.weights {
		var sum float64
		for i := range sample {
			sum += float64(q.scores[i*k/sample*q.stride+s])
		}
		mean := float64(w) * sum / float64(sample)
		largest := float64(float64(w) * float64(q.hi[s])) // not fused with what follows
		// The last term keeps entries far below the mean within int32.
		span = max(span, largest-mean, 1e-4*float64(w)*float64(q.hi[s]-q.lo[s]))
		a.base += mean
		a.add[s/32][s%32] = float32(mean) // made the addend below, once the step is known
	}
	a.step = span / 127
	if a.step == 0 {
		a.step = 1
	}
	for s, w := range q.weights {
		a.mul[s/32][s%32] = float32(float64(w) / a.step)
		a.add[s/32][s%32] = float32(0.5 - float64(a.add[s/32][s%32])/a.step)
	}
	for g := range groups {
		for c := 0; c < k; c += callRows {
			c1 := min(c+callRows, k)
			q.s.p.bytes(a.rows[g*k+c:g*k+c1], q.scores[c*q.stride+32*g:], q.stride, min(32, q.n-32*g), &a.mul[g], &a.add[g])
		}
	}
}

// callRows is the number of rows of S that one call converts.
const callRows = 16384

// bytesOf is the portable loop of prims.bytes.
func bytesOf(dst []row4, scores []float32, stride, n int, mul, add *[32]float32) {
	for c := range dst {
		var r row4
		for i, v := range scores[c*stride : c*stride+n] {
			b := int32(float32(v*mul[i&31]) + add[i&31])
			r[i>>3&3] |= uint64(min(max(b, 0), 127)) << (i & 7 * 8)
		}
		dst[c] = r
	}
}

// Approx implements [Scorer]. Each query token's part is rounded to 1/127 of
// the widest range between mean and maximum of a column of S; a part below
// about the mean of its column counts as that mean. With a negative weight in
// the query the scores are exact.
func (s *scorer) Approx(dst []float32, prepared Query, c *Chunk, docs []uint32) {
	q := prepared.(*query)
	if q.negative {
		s.approxFloat(dst, q, c, docs)
		return
	}
	q.ensure(builtApprox, (*query).buildApprox)
	a, k := &q.approx, s.codec.Centroids.K
	sc := s.scratch.Get().(*scratch)
	for i, n := 0, count(c, docs); i < n; {
		ranges := sc.batch(c, docs, i, n, callTokens)
		best, sums := sc.bytes[:len(ranges)], sc.sums[:len(ranges)]
		clear(sums)
		for rows := a.rows; len(rows) > 0; rows = rows[k:] {
			clear(best)
			for j := 0; ; j++ {
				part := sc.part(ranges, j, callTokens)
				if part == nil {
					break
				}
				s.p.maxBytes(best, part, rows[:k], c.Codes, c.CodeBytes)
			}
			for j := range best {
				b := &best[j]
				sums[j] += float64(sum8(b[0]) + sum8(b[1]) + sum8(b[2]) + sum8(b[3]))
			}
		}
		for j, r := range ranges {
			dst[i+j] = 0
			if r[0] < r[1] {
				dst[i+j] = float32(a.base + float64(a.step*sums[j]))
			}
		}
		i += len(ranges)
	}
	s.scratch.Put(sc)
}

// maxBytes is the portable loop of prims.maxBytes.
func maxBytes(best []row4, ranges [][2]uint32, rows []row4, codes []byte, codeBytes int) {
	for i, r := range ranges {
		lo, hi := int(r[0])*codeBytes, int(r[1])*codeBytes
		if codeBytes == 2 {
			maxRows16(&best[i], rows, codes[lo:hi])
		} else {
			maxRows32(&best[i], rows, codes[lo:hi])
		}
	}
}

func maxRows16(best *row4, rows []row4, codes []byte) {
	m0, m1, m2, m3 := best[0], best[1], best[2], best[3]
	for ; len(codes) >= 2; codes = codes[2:] {
		r := &rows[binary.LittleEndian.Uint16(codes)]
		m0, m1 = max8(m0, r[0]), max8(m1, r[1])
		m2, m3 = max8(m2, r[2]), max8(m3, r[3])
	}
	*best = row4{m0, m1, m2, m3}
}

func maxRows32(best *row4, rows []row4, codes []byte) {
	m0, m1, m2, m3 := best[0], best[1], best[2], best[3]
	for ; len(codes) >= 4; codes = codes[4:] {
		r := &rows[binary.LittleEndian.Uint32(codes)]
		m0, m1 = max8(m0, r[0]), max8(m1, r[1])
		m2, m3 = max8(m2, r[2]), max8(m3, r[3])
	}
	*best = row4{m0, m1, m2, m3}
}

// approxFloat computes the scores without rounding S.
func (s *scorer) approxFloat(dst []float32, q *query, c *Chunk, docs []uint32) {
	sc := s.scratch.Get().(*scratch)
	sc.hi = resize(sc.hi, q.n)
	best := sc.hi
	for i := range count(c, docs) {
		lo, hi := tokens(c, docs, i)
		for j := range best {
			best[j] = float32(math.Inf(-1))
		}
		for t := lo; t < hi; t++ {
			row := q.scores[int(c.Code(t))*q.stride:]
			for j, v := range row[:q.n] {
				if v > best[j] {
					best[j] = v
				}
			}
		}
		var sum float64
		if lo < hi {
			for j, v := range best {
				sum += float64(float64(q.weights[j]) * float64(v))
			}
		}
		dst[i] = float32(sum)
	}
	s.scratch.Put(sc)
}
