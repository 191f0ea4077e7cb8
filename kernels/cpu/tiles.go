package cpu

import (
	"math"
	"math/bits"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tiles"
)

// Level Fast by matrix products: the fields of a residual are multiplied, as bytes, with
// the query. Package tiles defines the layout of both. With a uniform codebook the
// residual part of a product is
//
//	⟨y, w[b]⟩ = step·(Σ y_j·b_j − m·Σ y_j),    y = g ⊙ q, m = (2ⁿ−1)/2.
//
// y_j is rounded to v_j grains. The integer v_j is split·high + low, both in 8 bits, so that
// C = Σ v_j·b_j is a sum of integers, without roundings. C is then shifted to units of the
// query token. In these units S, less the second sum, is added, and the sum multiplied by
// the factor, all in 16 bits.

// tileQuery is the query in the form of level Fast by tiles.
type tileQuery struct {
	tokens []tileToken
	tiles  []byte         // [groups of 32, blocks of 64 fields, 4096]
	shift  [][2][16]int32 // [groups]
	values []int32        // scratch: v of one query token
}

// tileToken has the rounding of a query token.
type tileToken struct {
	unit  float64 // of the 16-bit results
	grain float64 // y ≈ grain·v. 0 means that nothing is multiplied
	shift int     // number of bits from C to units
	low   float64 // −step·m·Σy, for the rounded y: added to S
	error float64 // bounds the error of the residual part, without roundings to units
	// square is Σh² of the errors ±h of the fields, whose sum is error. It is 0 where
	// nothing is multiplied.
	square float64
}

// maxTileResult is the largest 16-bit result less 4 units for roundings.
const maxTileResult = 32767 - 4

// tileSet has a codec in the form that level Fast by tiles uses.
type tileSet struct {
	layout   tiles.Layout
	blocks   int      // of 64 fields
	scales   []uint32 // of the centroids, in units of scaleMax/2¹⁵, in both halves. nil means that all are 1
	scaleMax float64
}

// newTileSet returns nil if level Fast does not use tiles: if the tier has none, the
// codebook is not uniform, or a residual has fewer than 64 fields.
func newTileSet(s *scorer) *tileSet {
	c := &s.codec
	layout, ok := tiles.NewLayout(s.dim, c.Codebook.Nbits)
	supported := ok && c.Codebook.Uniform() && !s.hasNegativeScale && c.Centroids.K <= tiles.MaxCentroids
	if s.loops.Tiles == nil || !supported {
		return nil
	}
	set := &tileSet{layout: layout, blocks: layout.Blocks(), scaleMax: 1}
	if s.scales16 != nil {
		if s.scaleMax < 1e-30 {
			return nil
		}
		set.scaleMax = s.scaleMax * 32768 / 32767 // so that the largest fraction is 1 − 2⁻¹⁵
		set.scales = make([]uint32, len(c.CentroidScale))
		for i, a := range c.CentroidScale {
			set.scales[i] = uint32(float64(float64(a)/s.scaleMax*32767)+0.5) * 0x10001
		}
	}
	return set
}

// buildTiles rounds the query tokens and writes them into tiles.
func (q *query) buildTiles() {
	s, f := q.scorer, &q.tiles
	blocks, groups := s.tiles.blocks, (q.N+fastGroup-1)/fastGroup
	f.tokens, f.values = resize(f.tokens, q.N), resize(f.values, s.dim)
	f.tiles = resize(f.tiles, groups*blocks*tiles.BlockBytes)
	f.shift = resize(f.shift, groups)
	clear(f.tiles)
	clear(f.shift)
	for i := range f.tokens {
		if q.endedAt(i) {
			return
		}
		t := &f.tokens[i]
		*t = q.roundToken(i, f.values)
		g, lane := i/fastGroup, i%fastGroup
		q.fillTiles(f.tiles[g*blocks*tiles.BlockBytes:(g+1)*blocks*tiles.BlockBytes], lane, f.values)
		half, column := tileColumn(lane)
		f.shift[g][half][column] = int32(t.shift)
	}
}

// tileColumn returns the half and the column of a lane. Packing 32-bit sums to 16 bits
// interleaves the halves by four; with these columns the result is in the order of the lanes.
func tileColumn(lane int) (half, column int) { return lane / 4 % 2, lane/8*4 + lane%4 }

// fillTiles writes the values of a query token to its column.
func (q *query) fillTiles(dst []byte, lane int, values []int32) {
	s := q.scorer
	split := int32(tiles.Split(s.codec.Codebook.Nbits))
	half, column := tileColumn(lane)
	for b := range s.tiles.blocks {
		for m := range 64 {
			j := s.tiles.layout.Dimension(b, m)
			if j < 0 {
				continue
			}
			offset := tiles.ByteOffset(b, half, column, m)
			high, low := splitValue(values[j], split)
			dst[offset], dst[offset+tiles.LowDistance] = byte(high), byte(low)
		}
	}
}

// splitValue returns v as high·split + low with low in −split/2 … split/2−1.
func splitValue(v, split int32) (high, low int32) {
	high = (v + split/2) >> bits.TrailingZeros32(uint32(split)) // split is a power of two
	return high, v - high*split
}

// roundToken rounds query token i to values, and returns its grain, shift and unit. It
// finds the smallest unit with which no sum overflows 16 bits: C after the shift, S with
// the low term, and their sum. It starts with an estimate and increases the unit until the
// rounded values fit.
func (q *query) roundToken(i int, values []int32) (t tileToken) {
	s := q.scorer
	nbits := s.codec.Codebook.Nbits
	split := tiles.Split(nbits)
	step, a := float64(s.codec.Codebook.Step), s.tiles.scaleMax
	var largest float64
	for j := range s.dim {
		largest = max(largest, math.Abs(q.scaledComponent(i, j)))
	}
	grainMin := largest / float64(127*split+split/2-1) // the largest value is 127·split + split/2 − 1
	multiple := 1.0                                    // C is in units of multiple·grain
	if nbits == 8 {
		multiple = float64(split)
	}
	r := &q.ranges[i]
	span := float64(q.hi[i]) - float64(q.lo[i])
	largestSum := max(float64(q.hi[i])+a*r.hi, -float64(q.lo[i])-a*r.lo, (a*r.hi-a*r.lo)/2)
	unit := (largestSum + 1e-4*span) / maxTileResult
	if !(unit > 1e-30) || !(unit < 1e30) {
		unit = 1
	}
	for {
		base := a * step * multiple * grainMin
		if !(base > 1e-35) { // the residual part is 0 or negligible: only its size is an error
			t = tileToken{unit: unit}
			clear(values)
			for j := range s.dim {
				t.error += a * step * float64(len(s.weights)-1) / 2 * math.Abs(q.scaledComponent(i, j))
			}
			return t
		}
		t = tileToken{grain: grainMin}
		// The largest shift with a grain of at least grainMin: unit/base ≥ 2^(exp−1).
		if _, exp := math.Frexp(unit / base); exp > 0 {
			t.shift = min(exp-1, 30)
			t.grain = unit / (a * step * multiple * math.Ldexp(1, t.shift))
		}
		t.unit = a * step * multiple * t.grain * math.Ldexp(1, t.shift)
		neededUnit := q.roundToGrain(&t, i, values)
		if !(neededUnit <= math.MaxFloat64) { // S overflows, so that no unit fits and no score is finite
			t.unit = math.Inf(1)
			return t
		}
		if neededUnit <= t.unit {
			return t
		}
		unit = neededUnit * (1 + 1e-3)
	}
}

// roundToGrain rounds query token i to multiples of the grain, sets the low term and the
// errors, and returns the smallest unit with which no sum overflows.
func (q *query) roundToGrain(t *tileToken, i int, values []int32) (neededUnit float64) {
	s := q.scorer
	nbits := s.codec.Codebook.Nbits
	split, maxBucket := int32(tiles.Split(nbits)), int64(len(s.weights)-1)
	var sum, lows, maxSum, minSum int64
	for j := range values {
		y := q.scaledComponent(i, j)
		v := int32(math.RoundToEven(y / t.grain))
		values[j] = v
		fieldError := float64(maxBucket) / 2 * math.Abs(y-float64(float64(v)*t.grain))
		high, low := splitValue(v, split)
		sum += int64(v)
		extreme := maxBucket * int64(v) // the field adds between 0 and this to C
		if nbits == 8 {
			lows += int64(low)
			// The low part is multiplied with the upper half of a field only: the lower
			// half, 0 to 15, counts as 7.5.
			fieldError += 7.5 * t.grain * float64(max(low, -low))
			extreme = maxBucket*int64(high) + 15*int64(low)
		}
		t.error += fieldError
		t.square += float64(fieldError * fieldError)
		maxSum += max(extreme, 0)
		minSum += min(extreme, 0)
	}
	step, multiple := float64(s.codec.Codebook.Step), 1.0
	middle := float64(maxBucket) / 2 * float64(sum)
	if nbits == 8 {
		multiple = float64(split)
		middle -= 7.5 * float64(lows)
	}
	a := s.tiles.scaleMax
	t.error *= a * step
	t.square *= a * step * a * step
	t.low = -step * t.grain * middle
	lo, hi := float64(q.lo[i]), float64(q.hi[i])
	grain := step * multiple * t.grain
	scaleMin, scaleMax := s.scaleMin, s.scaleMax
	smallest, biggest := grain*float64(minSum)+t.low, grain*float64(maxSum)+t.low // of the residual part
	// S with the residual part, S with the low term alone, and the shifted C.
	neededUnit = max(
		hi+max(scaleMin*biggest, scaleMax*biggest), -lo-min(scaleMin*smallest, scaleMax*smallest),
		hi+max(scaleMin*t.low, scaleMax*t.low), -lo-min(scaleMin*t.low, scaleMax*t.low),
		a*grain*float64(maxSum), -a*grain*float64(minSum),
	)
	return neededUnit / maxTileResult
}

// tilesPath computes level Fast by matrix products.
type tilesPath struct {
	q     *query
	sc    *scratch
	group int
}

func (p *tilesPath) groupAndCallSize() (group, call int) {
	return fastGroup, maxCallTileTokens / max(p.q.scorer.tiles.blocks, 2)
}

func (p *tilesPath) startGroup(docs, group int) {
	if p.sc.tilesCall == nil {
		set := p.q.scorer.tiles
		p.sc.tilesCall = tiles.NewCall(set.layout, set.scales, callDocs)
	}
	p.group = group
	for j := range docs {
		p.sc.tilesCall.Best[j] = lowestTileResults
	}
}

func (p *tilesPath) raiseMaxima(ranges [][2]uint32, ch *kernels.Chunk) {
	s, f, g, c := p.q.scorer, &p.q.tiles, p.group, p.sc.tilesCall
	k, size := s.codec.Centroids.K, s.tiles.blocks*tiles.BlockBytes
	c.Codes, c.CodeBytes, c.Residuals, c.Factors = ch.Codes, ch.CodeBytes, ch.Residuals, ch.Factors
	c.Tiles, c.Shift, c.Scores = f.tiles[g*size:(g+1)*size], &f.shift[g], p.q.words.rows[g*k:(g+1)*k]
	c.StartPlan()
	for doc, t := range ranges {
		c.PlanTokens(doc, int(t[0]), int(t[1]))
	}
	if c.EndPlan(len(ranges)) {
		s.loops.Tiles(c)
	}
}

func (p *tilesPath) copyMaxima(dst []float64, doc int) {
	best := &p.sc.tilesCall.Best[doc]
	for i := range dst {
		dst[i] = float64(best[i])
	}
}

func (p *tilesPath) addMaxima(sum float64, values []float64, first int) float64 {
	q := p.q
	for i, v := range values {
		sum += float64(float64(q.weights[first+i]) * q.tiles.tokens[first+i].unit * v)
	}
	return sum
}

func (p *tilesPath) scoreUnit() float64 { return 32768 * p.q.scorer.factorUnit() }

func (p *tilesPath) dropReferences() {
	if p.sc.tilesCall != nil {
		p.sc.tilesCall.Release()
	}
	*p = tilesPath{}
}

// maxCallTileTokens is the largest number of tokens of one call times the blocks of 64
// fields of each.
const maxCallTileTokens = 1 << 15

// lowestTileResults has the initial value of maxima of 16 bits.
var lowestTileResults = func() (p [32]int16) {
	for i := range p {
		p[i] = math.MinInt16
	}
	return p
}()
