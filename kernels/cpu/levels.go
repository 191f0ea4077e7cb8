package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// With a uniform codebook the residual part of a product is linear in the bucket
// numbers,
//
//	⟨g ⊙ q, w[b]⟩ = step · (Σ g_j·q_j·b_j − (2ⁿ−1)/2 · Σ g_j·q_j),
//
// so with g ⊙ q rounded to integers the sum is one of integers: exact, in any
// order, by tables or by dot products. Level Fine rounds to 16 bits, on every
// processor. Processors that multiply bytes (VNNI) compute dot products, for which an
// integer of 16 bits is two bytes; at level Fast they round to one byte of 8 bits, where
// other processors use tables of 16-bit sums.

const (
	levelGroup = 32 // query tokens of one call of tier.Tokens.MaxLevels

	maxInteger8  = 127
	maxInteger16 = 127 << 8 // so that high and low byte both are signed
	// maxSum32 bounds the sum of the products of unrounded integers with buckets, so that
	// sums fit 32 bits: rounding 4096 integers by ½ adds at most 4096·½·255 < 2²¹.
	maxSum32 = 1<<31 - 1<<21
)

// levelQuery has the query in the form of tier.Tokens.MaxLevels.
type levelQuery struct {
	bytes     []byte                // [groups, fields of a byte, residual bytes/4, integerBytes, 32, 4]
	unit, mid [][levelGroup]float32 // ⟨g ⊙ q, w⟩ = mid + unit·sum
	words     [][levelGroup]float32 // units of words of S
}

// usesLevels reports whether MaxSim at a level uses tier.Tokens.MaxLevels. At level Fine it
// does only where other processors would use tables, whose sums are the same.
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
	// Residuals of 1 bit have few bytes, for which tables are faster.
	return q.scorer.codec.Codebook.Nbits > 1 || !q.usesTables(fastGroup)
}

// integerBytes returns the number of bytes of a query integer at a level.
func integerBytes(l kernels.Level) int {
	if l == kernels.Fine {
		return 2
	}
	return 1
}

// setLevelUnits sets the units of the integers of query token i at both levels, and the
// bounds of the errors by rounding to them.
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
		unit := r.levelUnits[kernels.Fast]
		for j := range s.dim {
			v := q.scaledComponent(i, j)
			roundingError := float64(float64(roundToUnits(v, unit))*unit) - v
			r.levelRoundings[kernels.Fast] += math.Abs(roundingError)
			r.squareSum8 += float64(roundingError * roundingError)
		}
		r.levelRoundings[kernels.Fast] *= s.weightMax
	}
}

// roundToUnits returns v/unit, rounded to the nearest integer, halves up.
func roundToUnits(v, unit float64) int32 { return int32(math.Floor(v/unit + 0.5)) }

// levelUnits returns unit and mid of query token i: ⟨g ⊙ q, w⟩ is mid + unit·sum, in which
// the sum is that of the products of integers and buckets.
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

// fillLevelTables builds the tables of level Fine for a uniform codebook and the query
// tokens first to first+n. The entries of a token add up to 2³¹ + Σ q·b in a lane of 32
// bits. Entries must not be negative, so the smallest sum of each nibble is subtracted from
// its entries; the entries of the first nibble make up for all of these, and have the 2³¹.
func (q *query) fillLevelTables(tables []byteTable, first, n int) {
	nbits := q.scorer.codec.Codebook.Nbits
	maxBucket := int64(1)<<nbits - 1
	// The offset of the first nibble: 2³¹ and the smallest sums of all fields.
	var offsets [fineGroup]int64
	for i := range n {
		offsets[i] = 1 << 31
		for j := range q.scorer.dim {
			integer := roundToUnits(q.scaledComponent(first+i, j), q.ranges[first+i].levelUnits[kernels.Fine])
			offsets[i] += min(0, maxBucket*int64(integer))
		}
	}
	// Entries of the 16 values of each nibble, which Compose adds up to those of a byte.
	nibbles := &q.nibbles
	for p := range tables {
		clear(nibbles[:])
		for i := range n {
			var ints [8]int64 // query integers of the byte's fields
			for f := range 8 / nbits {
				if j := p*8/nbits + f; j < q.scorer.dim {
					unit := q.ranges[first+i].levelUnits[kernels.Fine]
					ints[f] = int64(roundToUnits(q.scaledComponent(first+i, j), unit))
				}
			}
			word, shift := i/2, i%2*32
			for h := range nibbles {
				fields := ints[h*4/nbits:]
				if nbits == 8 { // a byte is 16 times its high nibble plus the low one
					fields = []int64{ints[0] << (4 * h)}
				}
				var smallest int64
				width, fieldMax := min(nbits, 4), min(maxBucket, 15)
				for f := range 4 / width {
					smallest += min(0, fieldMax*fields[f])
				}
				for x := range nibbles[h] {
					v := -smallest
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

// buildLevels writes the integers of the query in the layout of tier.Tokens.MaxLevels.
func (q *query) buildLevels(level kernels.Level) {
	s, l := q.scorer, &q.levels[level]
	nbits, perInteger := s.codec.Codebook.Nbits, integerBytes(level)
	fieldsPerByte, quads := 8/nbits, (s.rowBytes+3)/4 // a quad is four residual bytes
	groups, size := (q.N+levelGroup-1)/levelGroup, fieldsPerByte*quads*perInteger*4*levelGroup
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
			p, f := j/fieldsPerByte, j%fieldsPerByte // residual byte, and field in it
			offset := (f*quads+p/4)*perInteger*4*levelGroup + 4*lane + p%4
			if perInteger == 2 { // v = 256·high + low, with a signed low byte
				group[offset+4*levelGroup] = byte(v)
				v = (v + 128) >> 8
			}
			group[offset] = byte(v)
		}
	}
}

// lowestFloats has the initial value of maxima of float32: −∞.
var lowestFloats = func() (p [levelGroup]float32) {
	for i := range p {
		p[i] = float32(math.Inf(-1))
	}
	return p
}()
