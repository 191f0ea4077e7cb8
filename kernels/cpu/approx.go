package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// approxRows is S with a byte an entry: the 7 bits of w_s·S(c, s) above an offset
// of each query token. The unit of all entries is the same, so that they can be summed
// over query tokens. The offset is the mean of the column, and entries below it are 0: a
// token that matches a query token no better than an average centroid is seldom the best
// of its document, so all of the resolution is spent above.
type approxRows struct {
	rows      []byteRow     // [groups of 32 query tokens, K]
	step      float64       // the unit of entries
	offsetSum float64       // of all query tokens
	mul       [][32]float32 // entry = mul·S + add
	add       [][32]float32

	means []float64 // of the columns of S
}

// approxSampleSize is the number of centroids that buildApprox computes the means from.
const approxSampleSize = 1024

// buildApprox computes the byte rows from S.
func (q *query) buildApprox() {
	a, k := &q.approx, q.scorer.codec.Centroids.K
	groups := (q.N + 31) / 32
	a.rows = resize(a.rows, groups*k)
	sample := min(k, approxSampleSize)
	a.means = resize(a.means, q.N)
	for s := range a.means {
		if q.endedAt(s) {
			return
		}
		a.means[s] = 0
		for i := range sample {
			a.means[s] += float64(q.scores[i*k/sample*q.Stride+s])
		}
		a.means[s] /= float64(sample)
	}
	q.computeApproxUnits()
	for g := range groups {
		if q.endedAt(32*g + 31) {
			return
		}
		for c := 0; c < k; c += maxCallRows {
			c1 := min(c+maxCallRows, k)
			rows, scores := a.rows[g*k+c:g*k+c1], q.scores[c*q.Stride+32*g:]
			q.scorer.loops.Bytes(rows, scores, q.Stride, min(32, q.N-32*g), &a.mul[g], &a.add[g])
		}
	}
}

// computeApproxUnits computes step, offsets and factors from the means.
func (q *query) computeApproxUnits() {
	a, groups := &q.approx, (q.N+31)/32
	a.mul, a.add = resize(a.mul, groups), resize(a.add, groups)
	clear(a.mul)
	clear(a.add)

	var span float64
	a.offsetSum = 0
	for s, w := range q.weights {
		if q.endedAt(s) {
			return
		}
		mean := float64(w) * a.means[s]
		largest := float64(float64(w) * float64(q.hi[s])) // the conversion prevents fusing
		// The last term keeps entries far below the mean within int32.
		span = max(span, largest-mean, 1e-4*float64(w)*float64(q.hi[s]-q.lo[s]))
		a.offsetSum += mean
		a.add[s/32][s%32] = float32(mean) // replaced below, once the step is known
	}
	a.step = span / 127
	if a.step == 0 {
		a.step = 1
	}
	for s, w := range q.weights {
		a.mul[s/32][s%32] = float32(float64(w) / a.step)
		a.add[s/32][s%32] = float32(0.5 - float64(a.add[s/32][s%32])/a.step)
	}
}

// maxCallRows is the largest number of rows of S that one call converts.
const maxCallRows = 16384

// Approx implements [kernels.Query]. The maximum of each query token is rounded to 1/127
// of the widest range between mean and maximum of a column of S; one below about the mean
// of its column counts as that mean. If some weight of the query is negative, S is not
// rounded.
func (q *query) Approx(dst []float32, c *kernels.Chunk, docs []uint32) {
	if q.hasNegativeWeight {
		q.approxUnrounded(dst, c, docs)
		return
	}
	q.buildOnce(builtApprox, (*query).buildApprox)
	s := q.scorer
	a, k := &q.approx, s.codec.Centroids.K
	sc := s.scratchPool.Get().(*scratch)
	for i, n := 0, countDocs(c, docs); i < n; {
		ranges := sc.nextBatch(c, docs, i, n, callTokens)
		best, sums := sc.byteMaxima[:len(ranges)], sc.sums[:len(ranges)]
		clear(sums)
		for rows := a.rows; len(rows) > 0; rows = rows[k:] {
			clear(best)
			for j := 0; ; j++ {
				callRanges := sc.rangesOfCall(ranges, j, callTokens)
				if callRanges == nil {
					break
				}
				s.loops.MaxBytes(best, callRanges, rows[:k], c.Codes, c.CodeBytes)
			}
			for j := range best {
				b := &best[j]
				sums[j] += float64(sumBytes(b[0]) + sumBytes(b[1]) + sumBytes(b[2]) + sumBytes(b[3]))
			}
		}
		for j, r := range ranges {
			dst[i+j] = 0
			if r[0] < r[1] {
				dst[i+j] = float32(a.offsetSum + float64(a.step*sums[j]))
			}
		}
		i += len(ranges)
	}
	s.scratchPool.Put(sc)
}

// approxUnrounded computes the scores from S itself.
func (q *query) approxUnrounded(dst []float32, c *kernels.Chunk, docs []uint32) {
	s := q.scorer
	sc := s.scratchPool.Get().(*scratch)
	sc.hi = resize(sc.hi, q.N)
	best := sc.hi
	for i := range countDocs(c, docs) {
		lo, hi := tokenRange(c, docs, i)
		for j := range best {
			best[j] = float32(math.Inf(-1))
		}
		for t := lo; t < hi; t++ {
			row := q.scores[int(c.Code(t))*q.Stride:]
			for j, v := range row[:q.N] {
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
	s.scratchPool.Put(sc)
}
