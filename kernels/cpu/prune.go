package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/internal/portable"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// pruner finds nearest centroids without computing every product, with the
// same result to the bit.
//
// The centroids are rounded to 16 levels a dimension. The product of a row x with
// a rounded centroid ĉ is a sum of table entries, one for every two dimensions, as in
// product quantization (Jégou et al., "Product quantization for nearest neighbor
// search", 2011). Tables have 32 rows in adjacent lanes of 16 bits, so that a product
// of 128 dimensions takes 16 additions of words. By Cauchy–Schwarz
//
//	⟨x, c⟩ ≤ ⟨x, ĉ⟩ + ‖x‖·‖c − ĉ‖,
//
// where the last term comes from one more table. If the right side of a centroid,
// with all roundings added, is below the best product so far, the centroid is not the
// nearest. The products of all others are computed: about one in a thousand for real
// token vectors.
type pruner struct {
	loops         *tier.Tokens
	dim, k        int
	centroids     []float32
	lo, step      []float32 // level l of dimension j is lo[j] + step[j]·l
	levels        []byte    // [k, stride]: two dimensions a byte, then the error
	stride        int
	squaredErrors []float32 // scratch: ‖c − ĉ‖²
	errorUnit     float64   // ‖c − ĉ‖ is at most errorUnit · the error byte
	maxNorm       float64   // the largest ‖c‖
	tables        []byteTable
	nibbles       [2][16]tableRow // scratch
	sums          [pruneBlock]tableRow
	lanes         [pruneLanes]pruneLane
	thresholds    tableRow // for each lane the smallest sum whose product is computed
}

// pruneLane is the state of one row of x.
type pruneLane struct {
	x           []float32
	best        float32 // the best product so far
	code        uint32  // and its centroid
	unit, base  float64 // ⟨x, c⟩ ≤ base + unit·sum + slack
	slack       float64 // all roundings, those of the computed product included
	norm        float64 // ‖x‖
	pending     [4]uint32
	pendingSize int // number of centroids in pending, whose products are not computed yet
}

const (
	pruneLanes         = 32
	pruneBlock         = 512   // centroids whose sums are computed together: 32 KiB
	pruneTablesPerPass = 16    // tables that are added to a block at a time: 256 KiB
	pruneSumMax        = 32767 // sums leave the top bit of their lane free, for comparisons
)

// roundCentroids rounds the centroids. It reports false if they are too small or too large
// for the bounds.
func (p *pruner) roundCentroids(centroids []float32, dim int) bool {
	p.dim, p.k, p.centroids = dim, len(centroids)/dim, centroids
	p.stride = (dim+1)/2 + 1
	p.lo, p.step = resize(p.lo, dim), resize(p.step, dim)
	p.levels = resize(p.levels, p.k*p.stride)
	p.tables = resize(p.tables, p.stride)

	// 1. Levels. 16 levels 0.335 standard deviations apart have the smallest error for
	// normally distributed values (Max, "Quantizing for minimum distortion", 1960).
	clear(p.lo)
	clear(p.step)
	for c := range p.k {
		for j, v := range centroids[c*dim : (c+1)*dim] {
			p.lo[j] += v
			p.step[j] += float32(v * v)
		}
	}
	for j := range p.lo {
		mean := p.lo[j] / float32(p.k)
		sd := math.Sqrt(math.Max(0, float64(p.step[j]/float32(p.k))-float64(mean)*float64(mean)))
		p.step[j] = float32(0.335 * sd)
		p.lo[j] = mean - float32(7.5*p.step[j])
	}

	// 2. Rounding. An error is stored as a byte of 1 to 255, rounded up.
	inverse := make([]float32, 0, pruneMaxDim) // stays on the stack
	for _, s := range p.step {
		if s > 0 {
			inverse = append(inverse, 1/s)
		} else {
			inverse = append(inverse, 0)
		}
	}
	p.squaredErrors = resize(p.squaredErrors, p.k)
	var maxErrorSquare, maxNormSquare float64
	for c := range p.k {
		errorSquare, normSquare := p.roundCentroid(
			p.levels[c*p.stride:(c+1)*p.stride], centroids[c*dim:(c+1)*dim], inverse)
		p.squaredErrors[c] = errorSquare
		maxErrorSquare = max(maxErrorSquare, float64(errorSquare))
		maxNormSquare = max(maxNormSquare, float64(normSquare))
	}
	p.maxNorm = math.Sqrt(maxNormSquare) * (1 + 1e-3)
	p.errorUnit = math.Sqrt(maxErrorSquare) / 254
	toByte := float32(0)
	if p.errorUnit > 0 {
		toByte = float32(1 / p.errorUnit)
	}
	for c, e := range p.squaredErrors {
		p.levels[(c+1)*p.stride-1] = byte(float32(math.Sqrt(float64(e)))*toByte) + 1
	}
	// 3. A margin for the float32 roundings of the errors themselves.
	p.errorUnit = p.errorUnit*(1+1e-3) + p.maxNorm*4e-6
	return p.maxNorm >= minLength && p.maxNorm+p.errorUnit < 1e15 // also false for NaN
}

// roundCentroid writes the levels of a centroid and returns the squares of the norms
// of the rounding error and of the centroid.
func (p *pruner) roundCentroid(out []byte, centroid, inverse []float32) (errorSquare, normSquare float32) {
	n := len(centroid)
	lo, step, inverse := p.lo[:n], p.step[:n], inverse[:n]
	clear(out)
	for j, v := range centroid {
		level := min(max(int32(float32((v-lo[j])*inverse[j])+0.5), 0), 15)
		out[j>>1] |= byte(level) << (j & 1 * 4)
		e := v - lo[j] - float32(step[j]*float32(level))
		errorSquare += float32(e * e)
		normSquare += float32(v * v)
	}
	return errorSquare, normSquare
}

// nearest writes the nearest centroid of every row of x.
func (p *pruner) nearest(codes []uint32, scores []float32, x []float32) {
	rows := len(x) / p.dim
	for r0 := 0; r0 < rows; r0 += pruneLanes {
		n := min(pruneLanes, rows-r0)
		p.buildTables(x[r0*p.dim : (r0+n)*p.dim])
		// Lanes keep the best of the blocks so far.
		for c0 := 0; c0 < p.k; c0 += pruneBlock {
			p.scanBlock(c0, min(c0+pruneBlock, p.k), n)
		}
		for i := range n {
			codes[r0+i] = p.lanes[i].code
			if scores != nil {
				scores[r0+i] = p.lanes[i].best
			}
		}
	}
}

// buildTables resets the lanes and builds the tables of up to 32 rows.
func (p *pruner) buildTables(x []float32) {
	// 1. Units and slack of each row.
	n := len(x) / p.dim
	for i := range p.lanes {
		l := &p.lanes[i]
		*l = pruneLane{best: float32(math.Inf(-1))}
		if i >= n {
			continue
		}
		l.x = x[i*p.dim : (i+1)*p.dim]
		var span, normSum float64
		for j, v := range l.x {
			s := 15 * float64(v) * float64(p.step[j])
			span += math.Abs(s)
			l.base += float64(v)*float64(p.lo[j]) + min(s, 0)
			normSum += float64(v) * float64(v)
		}
		if l.norm = math.Sqrt(normSum); l.norm < minLength {
			continue // unit 0 means that every product is computed
		}
		// The largest sum is pruneSumMax. Each dimension may round up by half a unit, and
		// the error by one: p.dim + 1 covers that.
		l.unit = (span + 255*l.norm*p.errorUnit) / float64(pruneSumMax-p.dim-1)
		// Roundings of the table entries and their slopes, of the float32 product, and of
		// the float64 sums above.
		l.slack = l.unit*(0.501*float64(p.dim)+1) +
			l.norm*p.maxNorm*float64(p.dim+2)*0x1p-23 + (math.Abs(l.base)+span)*0x1p-40
	}

	// 2. The table of errors, and those of two dimensions each.
	last := len(p.tables) - 1
	p.fillErrors(&p.tables[last], n)
	nibbles := &p.nibbles
	for t := range p.tables[:last] {
		for h := range nibbles {
			j := 2*t + h
			if j == p.dim {
				nibbles[h] = [16]tableRow{}
				continue
			}
			p.fillNibble(&nibbles[h], j, n)
		}
		p.loops.Compose(&p.tables[t], &p.nibbles[0], &p.nibbles[1])
	}
}

// fillNibble sets entry l of dimension j to the rounded x_j·step_j·l / unit of
// each row, less the smallest entry. It computes in fixed point with 16 bits
// after the point, two rows in a word of 64 bits.
func (p *pruner) fillNibble(out *[16]tableRow, j, n int) {
	for w := range out[0] {
		var slope [2]uint64 // of rows 0 and 2, and of rows 1 and 3
		var falling uint64  // lanes whose entries fall with l
		for i := 4 * w; i < min(4*w+4, n); i++ {
			l := &p.lanes[i]
			if l.unit == 0 {
				continue
			}
			s := float64(l.x[j]) * float64(p.step[j]) / l.unit
			if s < 0 {
				s = -s
				falling |= 0xffff << (i & 3 * 16)
			}
			slope[i&1] |= uint64(s*0x1p16+0.5) << (i & 2 * 16)
		}
		var v [16]uint64
		const half = lanes32 << 15
		even, odd := uint64(half), uint64(half) // sums of rows 0 and 2, and of rows 1 and 3
		for l := range v {
			v[l] = even>>16&even16 | odd&^even16
			even += slope[0]
			odd += slope[1]
		}
		for l := range v {
			out[l][w] = v[l]&^falling | v[15-l]&falling
		}
	}
}

// fillErrors sets entry b to ‖x‖·errorUnit·b / unit, rounded up, of each row.
func (p *pruner) fillErrors(t *byteTable, n int) {
	*t = byteTable{}
	for i := range n {
		l := &p.lanes[i]
		if l.unit == 0 {
			continue
		}
		s := l.norm * p.errorUnit / l.unit
		for b := 1; b < len(t); b++ {
			t[b][i/4] |= uint64(s*float64(b)+1) << (i & 3 * 16)
		}
	}
}

// scanBlock updates the best of every lane with the centroids c0 to c1.
func (p *pruner) scanBlock(c0, c1, n int) {
	acc := p.sums[:c1-c0]
	clear(acc)
	for t := 0; t < len(p.tables); t += pruneTablesPerPass {
		tables := p.tables[t:min(t+pruneTablesPerPass, len(p.tables))]
		p.loops.Accumulate(acc, tables, p.levels[c0*p.stride+t:c1*p.stride], p.stride)
	}
	if c0 == 0 {
		p.findFirstBest(acc, n)
	}
	p.scoreReachingThreshold(acc, c0, n)
}

// findFirstBest computes, for every lane, the product of the centroids of the first block
// with the largest sum. It is a lower bound of the best product, from which the first
// thresholds follow.
func (p *pruner) findFirstBest(acc []tableRow, n int) {
	var m tableRow // largest sum of each lane
	for i := range acc {
		for w := range m {
			m[w] = maxLanes16(m[w], acc[i][w])
		}
	}
	for i := n; i < pruneLanes; i++ {
		m[i/4] |= pruneSumMax << (i & 3 * 16) // sums of unused lanes are 0 and do not reach it
	}
	p.thresholds = m
	p.scoreReachingThreshold(acc, 0, n)
	for i := range n {
		p.setThreshold(i, p.lanes[i].minPromisingSum())
	}
}

// scoreReachingThreshold computes the products of the centroids whose sums reach the
// threshold of a lane. acc has the sums of consecutive centroids, which begin with
// number c0.
func (p *pruner) scoreReachingThreshold(acc []tableRow, c0, n int) {
	// A lane with its top bit set, less the threshold, keeps that bit if the sum reaches it.
	t := &p.thresholds
	for i := range acc {
		a := &acc[i]
		hit := (a[0] | top16 - t[0]) | (a[1] | top16 - t[1]) | (a[2] | top16 - t[2]) | (a[3] | top16 - t[3]) |
			(a[4] | top16 - t[4]) | (a[5] | top16 - t[5]) | (a[6] | top16 - t[6]) | (a[7] | top16 - t[7])
		if hit&top16 != 0 {
			p.notePending(a, uint32(c0+i))
		}
	}
	for i := range n {
		if p.lanes[i].pendingSize > 0 {
			p.scorePending(i)
		}
	}
}

// minPromisingSum returns a sum below which the product is certainly less than the best.
func (l *pruneLane) minPromisingSum() float64 {
	if l.unit == 0 {
		return 0
	}
	return (float64(l.best)-l.base-l.slack)/l.unit - 1
}

// setThreshold sets the threshold of lane i, limited to the range of sums.
func (p *pruner) setThreshold(i int, sum float64) {
	shift := i & 3 * 16
	t := uint64(min(max(sum, 0), pruneSumMax))
	w := &p.thresholds[i/4]
	*w = *w&^(0xffff<<shift) | t<<shift
}

// notePending adds a centroid to the pending ones of every lane whose sum reaches its
// threshold.
func (p *pruner) notePending(sums *tableRow, code uint32) {
	for w := range sums {
		hit := ((sums[w] | top16) - p.thresholds[w]) & top16
		for i := 4 * w; hit != 0; i++ {
			if hit&0x8000 != 0 {
				l := &p.lanes[i]
				l.pending[l.pendingSize] = code
				l.pendingSize++
				if l.pendingSize == len(l.pending) {
					p.scorePending(i)
				}
			}
			hit >>= 16
		}
	}
}

// scorePending computes the products of the pending centroids of lane i, and raises its
// threshold if one of them is the best so far.
func (p *pruner) scorePending(i int) {
	l := &p.lanes[i]
	n := l.pendingSize
	for j := n; j < len(l.pending); j++ {
		l.pending[j] = l.pending[n-1] // the loop takes four: repeat the last, whose result is ignored
	}
	row := func(j int) []float32 {
		c := int(l.pending[j])
		return p.centroids[c*p.dim : (c+1)*p.dim]
	}
	var s [4]float32
	s[0], s[1], s[2], s[3] = portable.Dot1x4(l.x, row(0), row(1), row(2), row(3))
	l.pendingSize = 0
	before := l.best
	for j, v := range s[:n] {
		// Numbers do not always ascend, because findFirstBest comes first.
		if v > l.best || v == l.best && l.pending[j] < l.code {
			l.best, l.code = v, l.pending[j]
		}
	}
	if l.best > before {
		p.setThreshold(i, max(l.minPromisingSum(), float64(p.thresholds[i/4]>>(i&3*16)&0xffff)))
	}
}

// dropReferences drops the references to the caller's slices.
func (p *pruner) dropReferences() {
	p.centroids = nil
	clear(p.lanes[:])
}
