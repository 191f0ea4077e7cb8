package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// With uniform levels the residual part of a product is linear in the bucket
// numbers,
//
//	⟨g ⊙ q, w[b]⟩ = step · (Σ g_j·q_j·b_j − (2ⁿ−1)/2 · Σ g_j·q_j),
//
// so with g ⊙ q rounded to integers the sum is one of integers: exact, in any
// order, by tables or by dot products. Level Fine rounds to 16 bits, on every
// processor. Processors that multiply bytes (VNNI) do so, with an integer of 16
// bits in two parts; at level Fast they use one part of 8 bits, where others
// use tables of 16-bit sums.

const (
	levelGroup = 32 // query tokens of one call of tier.Tokens.MaxLevels

	maxInteger8  = 127
	maxInteger16 = 127 << 8      // high and low part both fit a signed byte
	maxSum32     = 1<<31 - 1<<21 // of the products, roundings left out
)

// levelQuery is what tier.Tokens.MaxLevels needs of a query.
type levelQuery struct {
	bytes     []byte                // [groups, fields of a byte, quads, parts, 32, 4]
	unit, mid [][levelGroup]float32 // ⟨g ⊙ q, w⟩ = mid + unit·sum
	words     [][levelGroup]float32 // units of words of S
}

// usesLevels reports whether MaxSim at a level is done by tier.Tokens.MaxLevels. Where
// others have no tables for level Fine, it agrees with what they do.
func (q *query) usesLevels(level kernels.Level) bool {
	if q.scorer.loops.MaxLevels == nil || !q.scorer.codec.Codebook.Uniform() || q.scorer.hasNegativeScale {
		return false
	}
	if level == kernels.Fine {
		return q.usesTables(fineGroup)
	}
	if q.scorer.tiles != nil {
		return false
	}
	// At 1 bit there are so few bytes that looking them up is faster.
	return q.scorer.codec.Codebook.Nbits > 1 || !q.usesTables(fastGroup)
}

// integerBytes is the number of bytes of a query integer.
func integerBytes(l kernels.Level) int {
	if l == kernels.Fine {
		return 2
	}
	return 1
}

// setLevelUnits settles the units of the integers of query token i, and says what
// rounding to 8 bits changes.
func (q *query) setLevelUnits(i int, r *residualRange) {
	s := q.scorer
	maxBucket := float64(int(1)<<s.codec.Codebook.Nbits - 1)
	var largest, sum float64
	for j := range s.dim {
		v := math.Abs(q.scaledComponent(i, j))
		largest, sum = max(largest, v), sum+v
	}
	if largest == 0 {
		r.levelUnits = [2]float64{1, 1}
		return
	}
	r.levelUnits[kernels.Fast] = largest / maxInteger8
	r.levelUnits[kernels.Fine] = max(largest/maxInteger16, sum*maxBucket/maxSum32)
	r.levelRoundings[kernels.Fine] = r.levelUnits[kernels.Fine] / 2 * float64(s.dim) * s.weightMax
	if q.usesLevels(kernels.Fast) {
		for j := range s.dim {
			v := q.scaledComponent(i, j)
			roundingError := float64(float64(roundToUnits(v, r.levelUnits[kernels.Fast]))*r.levelUnits[kernels.Fast]) - v
			r.levelRoundings[kernels.Fast] += math.Abs(roundingError)
			r.squareSum8 += float64(roundingError * roundingError)
		}
		r.levelRoundings[kernels.Fast] *= s.weightMax
	}
}

// roundToUnits rounds v to units.
func roundToUnits(v, unit float64) int32 { return int32(math.Floor(v/unit + 0.5)) }

// levelUnits returns what makes a product of the sum of query token i.
func (q *query) levelUnits(i int, level kernels.Level) (unit, mid float32) {
	s, u := q.scorer, q.ranges[i].levelUnits[level]
	var sum int64
	for j := range s.dim {
		sum += int64(roundToUnits(q.scaledComponent(i, j), u))
	}
	step := float64(s.codec.Codebook.Step) * u
	half := float64(int(1)<<s.codec.Codebook.Nbits-1) / 2
	return float32(step), float32(-step * half * float64(sum))
}

// fillLevelTables builds the tables of level Fine for uniform levels, for the query
// tokens first to first+n: Σ q·b in lanes of 32 bits, 2³¹ added to those of the
// first byte and what the entries of others were raised by, so as not to be
// negative, taken off.
func (q *query) fillLevelTables(tables []byteTable, first, n int) {
	nbits := q.scorer.codec.Codebook.Nbits
	maxBucket := int64(1)<<nbits - 1
	var offsets [fineGroup]int64
	for i := range n {
		offsets[i] = 1 << 31
		for j := range q.scorer.dim {
			offsets[i] += min(0, maxBucket*int64(roundToUnits(q.scaledComponent(first+i, j), q.ranges[first+i].levelUnits[kernels.Fine])))
		}
	}
	nibbles := &q.nibbles
	for p := range tables {
		clear(nibbles[:])
		for i := range n {
			var ints [8]int64 // of the fields of the byte
			for f := range 8 / nbits {
				if j := p*8/nbits + f; j < q.scorer.dim {
					ints[f] = int64(roundToUnits(q.scaledComponent(first+i, j), q.ranges[first+i].levelUnits[kernels.Fine]))
				}
			}
			word, shift := i/2, i%2*32
			for h := range nibbles {
				fields := ints[h*4/nbits:]
				if nbits == 8 { // 16 times the high nibble and the low one
					fields = []int64{ints[0] << (4 * h)}
				}
				var low int64
				width, fieldMax := min(nbits, 4), min(maxBucket, 15)
				for f := range 4 / width {
					low += min(0, fieldMax*fields[f])
				}
				for x := range nibbles[h] {
					v := -low
					for f := range 4 / width {
						v += fields[f] * (int64(x) >> (f * width) & fieldMax)
					}
					if p == 0 && h == 0 {
						v += offsets[i]
					}
					nibbles[h][x][word] |= uint64(v) << shift
				}
			}
		}
		q.scorer.loops.Compose(&tables[p], &nibbles[0], &nibbles[1])
	}
}

// buildLevels lays the integers of a query out for tier.Tokens.MaxLevels.
func (q *query) buildLevels(level kernels.Level) {
	s, l := q.scorer, &q.levels[level]
	nbits, parts := s.codec.Codebook.Nbits, integerBytes(level)
	planes, quads := 8/nbits, (s.rowBytes+3)/4
	groups, size := (q.N+levelGroup-1)/levelGroup, planes*quads*parts*4*levelGroup
	l.bytes = resize(l.bytes, groups*size)
	clear(l.bytes)
	l.unit, l.mid, l.words = resize(l.unit, groups), resize(l.mid, groups), resize(l.words, groups)
	clear(l.unit)
	clear(l.mid)
	clear(l.words)
	for i := range q.N {
		if q.endedAt(i) {
			return
		}
		g, lane := i/levelGroup, i%levelGroup
		l.unit[g][lane], l.mid[g][lane] = q.levelUnits(i, level)
		l.words[g][lane] = float32(q.wordUnit(i))
		group, u := l.bytes[g*size:(g+1)*size], q.ranges[i].levelUnits[level]
		for j := range s.dim {
			v := roundToUnits(q.scaledComponent(i, j), u)
			p, f := j/planes, j%planes
			offset := (f*quads+p/4)*parts*4*levelGroup + 4*lane + p%4
			if parts == 2 {
				group[offset+4*levelGroup] = byte(v)
				v = (v + 128) >> 8
			}
			group[offset] = byte(v)
		}
	}
}

// lowestFloats is no larger than any products.
var lowestFloats = func() (p [levelGroup]float32) {
	for i := range p {
		p[i] = float32(math.Inf(-1))
	}
	return p
}()
