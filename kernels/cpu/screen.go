package cpu

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// Most rows of S only have to be known roughly: to find the best centroids of a query
// token, in the bytes of Approx and in the words of level Fast. So centroids and query are
// rounded to bytes, as filter.go does, and S to products of these; float32 rows are
// computed of the best centroids, and of those that documents have which get a score of
// level Fine. With
//
//	c = m + s ⊙ l + ε,    s ⊙ q = u·n + δ    and    ⟨q, m⟩ = u·z + ζ,
//
// for levels l of −128 to 127, integers n of ±63 and an integer z, ⟨q, c⟩ is
// u·(z + ⟨n, l⟩) + ζ + ⟨δ, l⟩ + ⟨q, ε⟩. The sum is one of integers, exact in float32, so that
// processors that multiply bytes and those that do not agree to the bit. (Two products of
// bytes fit 16 bits then, in which AVX2 adds them.) The rest is the error of S.

const (
	// minScreenCentroids is the number of centroids from which on screening pays.
	minScreenCentroids = 1 << 12
	// maxScreenSum bounds sums, of which products take up to 63·128 a dimension, and
	// leave some for z.
	maxScreenSum = 1 << 24
	maxScreenDim = (maxScreenSum - 1<<20) / (63 * 128) &^ 15
	// maxScreenBest bounds the best centroids of a query token that are looked for.
	maxScreenBest = 48
	// screenRows is the number of rows of a block: its products stay in L1.
	screenRows = 192
)

// byteCentroids is the centroids rounded to bytes.
type byteCentroids struct {
	stride int       // of the levels of a centroid: a multiple of 4
	levels []byte    // [K, stride], 128 added; nil where bytes are not multiplied
	halves []byte    // or as bfloat16, [K, dim]
	step   []float32 // [dim]: s
	middle []float32 // [dim]: m
	usable bool      // the range of centroids is finite

	maxLevelNorm, maxErrorNorm float64   // the largest of a centroid: ‖l‖, ‖ε‖
	maxErrors                  []float64 // [dim]: the largest |ε|
	mean                       []float32 // [dim]: of the centroids
}

// newByteCentroids rounds the centroids: some 30 ms for 65,536, once.
func (s *scorer) newByteCentroids() *byteCentroids {
	k, dim := s.codec.Centroids.K, s.dim
	c := &byteCentroids{
		stride:    (dim + 3) &^ 3,
		step:      make([]float32, dim),
		middle:    make([]float32, dim),
		maxErrors: make([]float64, dim),
		mean:      make([]float32, dim),
	}
	lo, hi := make([]float32, dim), make([]float32, dim)
	resetRanges(lo, hi)
	block, sums := make([]float32, screenRows*dim), make([]float64, dim)
	for c0 := 0; c0 < k; c0 += screenRows {
		n := min(screenRows, k-c0)
		s.readCentroids(block, c0, c0+n)
		for r := range n {
			for j, v := range block[r*dim : (r+1)*dim] {
				lo[j], hi[j] = min(lo[j], v), max(hi[j], v)
				sums[j] += float64(v)
			}
		}
	}
	inverse := make([]float32, dim)
	for j := range lo {
		if c.step[j] = (hi[j] - lo[j]) / 255; c.step[j] > 0 {
			inverse[j] = 1 / c.step[j]
		}
		c.middle[j] = lo[j] + float32(128*c.step[j])
		c.mean[j] = float32(sums[j] / float64(k))
		if !isFinite(inverse[j]) || !isFinite(c.middle[j]) {
			return c
		}
	}
	c.usable = true
	if s.loops.Screen != nil {
		c.levels = make([]byte, k*c.stride)
	} else {
		c.halves = make([]byte, 2*k*dim)
	}
	var half [256][2]byte
	for l := range half {
		h := kernels.BF16FromF32(float32(l - 128))
		half[l] = [2]byte{byte(h), byte(h >> 8)}
	}
	for c0 := 0; c0 < k; c0 += screenRows {
		n := min(screenRows, k-c0)
		s.readCentroids(block, c0, c0+n)
		for r := range n {
			var levelSquares, errorSquares float64
			for j, v := range block[r*dim : (r+1)*dim] {
				level := min(max(int32(float32((v-lo[j])*inverse[j])+0.5), 0), 255)
				l := float64(level - 128)
				e := float64(v) - float64(c.middle[j]) - float64(l*float64(c.step[j]))
				levelSquares, errorSquares, c.maxErrors[j] = levelSquares+l*l, errorSquares+float64(e*e), max(c.maxErrors[j], e, -e)
				if c.levels != nil {
					c.levels[(c0+r)*c.stride+j] = byte(level)
				} else {
					copy(c.halves[2*((c0+r)*dim+j):], half[level][:])
				}
			}
			c.maxLevelNorm, c.maxErrorNorm = max(c.maxLevelNorm, levelSquares), max(c.maxErrorNorm, errorSquares)
		}
	}
	c.maxLevelNorm, c.maxErrorNorm = math.Sqrt(c.maxLevelNorm), math.Sqrt(c.maxErrorNorm)
	return c
}

// screenQuery is what a query has where S is screened.
type screenQuery struct {
	enabled   bool
	listLen   int // best centroids of a query token by products of bytes
	centroids *byteCentroids

	integers []float32         // n
	panel    []byte            // [groups, stride/4, 32, 4]: n
	start    [][32]int32       // [groups]: z − 128·Σn; the 128 is that of unsigned levels
	vectors  tier.QueryVectors // n, where bytes are not multiplied
	tokens   []screenToken
	units    []tier.CoarseUnits // [groups]

	bestLists    [][]ranked // lists [query tokens, keep] of the best by bytes; by mu
	listsUsed    int        // of the lists
	freeLists    [][]ranked // those that nobody adds to
	neededRows   []uint64   // rows of S that were asked for
	computedRows []uint64   // those that are there
}

// screenToken has the unit of a rounded query token, and bounds of its errors.
type screenToken struct {
	unit       float64 // S ≈ unit·sum
	z          float32 // added to the sum
	maxError   float64 // bounds the error of unit·sum
	spread     float64 // √Σh² of the roundings ±h of the query that are part of it
	systematic float64 // bounds the errors that are roundings of neither query nor centroids
}

// screenScratch is the work space of one call.
type screenScratch struct {
	products [screenRows][32]float32
	plain    []float32 // where bytes are not multiplied
	units    []tier.CoarseUnits
	found    [screenRows]uint64
}

// Screen implements [kernels.Query].
func (q *query) Screen(n int) bool {
	s, x := q.scorer, &q.screen
	k := s.codec.Centroids.K
	if n > 0 && (k < minScreenCentroids || n > maxScreenBest || s.dim > maxScreenDim || q.hasNegativeWeight) {
		return false
	}
	// Bounds of S take the place of its range.
	norm := s.maxCentroidNorm()
	if n > 0 {
		if x.centroids = s.byteCentroids(); !x.centroids.usable {
			return false
		}
	}
	for i := range q.lo {
		var square float64
		for _, v := range q.Vectors[i*s.dim : (i+1)*s.dim] {
			square += float64(v) * float64(v)
		}
		bound := math.Sqrt(square) * norm * (1 + 1e-5)
		if !(bound < math.MaxFloat32/4) {
			resetRanges(q.lo, q.hi)
			return false
		}
		q.lo[i], q.hi[i] = float32(-bound), float32(bound)
	}
	x.enabled, x.listLen, x.listsUsed, x.freeLists = true, 0, 0, x.freeLists[:0]
	x.neededRows, x.computedRows = resize(x.neededRows, (k+63)/64), resize(x.computedRows, (k+63)/64)
	clear(x.neededRows)
	clear(x.computedRows)
	if n > 0 {
		x.listLen = min(n+n/4+6, k)
		q.roundVectors()
		for i, t := range x.tokens { // words hold what sums are
			q.lo[i] -= float32(t.maxError)
			q.hi[i] += float32(t.maxError)
		}
		q.setApproxUnits()
		q.computeResidualRanges()
		q.setCoarseUnits()
		q.built[builtApprox].Store(true) // by CentroidScores
	}
	return true
}

// sumUnit returns the unit of the sums of a query token; 0 means that S is not made of sums.
func (x *screenQuery) sumUnit(i int) float64 {
	if !x.enabled || x.listLen == 0 {
		return 0
	}
	return x.tokens[i].unit
}

// usesByteProducts reports whether level Fast takes S from products of bytes.
func (q *query) usesByteProducts() bool { return q.screen.enabled && q.screen.listLen > 0 }

// roundVectors rounds the query.
func (q *query) roundVectors() {
	s, x := q.scorer, &q.screen
	groups, size := (q.N+31)/32, x.centroids.stride*32
	x.tokens, x.start = resize(x.tokens, q.N), resize(x.start, groups)
	clear(x.start)
	multipliesBytes := x.centroids.levels != nil
	if multipliesBytes {
		x.panel = resize(x.panel, groups*size)
		clear(x.panel)
	}
	x.integers = resize(x.integers, q.N*s.dim)
	clear(x.integers)
	for i := range q.N {
		v := q.Vectors[i*s.dim : (i+1)*s.dim]
		var largest, mid, normSquare float64
		for j, m := range x.centroids.middle {
			largest = max(largest, math.Abs(float64(v[j])*float64(x.centroids.step[j])))
			mid += float64(v[j]) * float64(m)
			normSquare += float64(v[j]) * float64(v[j])
		}
		unit := max(largest/63, math.Abs(mid)/float64(maxScreenSum-63*128*s.dim-1))
		if !(unit > minUnit) {
			unit = 0
		}
		var sum, z int32
		var maxRoundError, squareSum, errorSum float64 // of |δ|
		for j := range v {
			x, n := float64(v[j])*float64(x.centroids.step[j]), int32(0)
			if unit > 0 {
				n = roundToUnits(x, unit)
			}
			roundError := math.Abs(x - float64(float64(n)*unit))
			maxRoundError, squareSum, errorSum = max(maxRoundError, roundError), squareSum+float64(roundError*roundError), errorSum+roundError
			q.screen.integers[i*s.dim+j] = float32(n)
			sum += n
			if multipliesBytes {
				q.screen.panel[i/32*size+j/4*128+i%32*4+j%4] = byte(n)
			}
		}
		if unit > 0 {
			z = roundToUnits(mid, unit)
		}
		x.start[i/32][i%32] = z - 128*sum
		systematic := math.Abs(mid-float64(float64(z)*unit)) + float64(s.dim+8)*eps*math.Sqrt(normSquare)*s.maxCentroidNorm()
		x.tokens[i] = screenToken{
			unit: unit, z: float32(z), systematic: systematic, spread: maxRoundError * x.centroids.maxLevelNorm,
			maxError: (systematic + min(math.Sqrt(squareSum)*x.centroids.maxLevelNorm, 128*errorSum) + math.Sqrt(normSquare)*x.centroids.maxErrorNorm) * (1 + 1e-6),
		}
	}
	if !multipliesBytes {
		x.vectors.Reset(x.integers, s.dim)
	}
}

// setApproxUnits computes the units of the bytes of Approx. The mean of a column of S is the product
// with the mean of the centroids.
func (q *query) setApproxUnits() {
	s, a := q.scorer, &q.approx
	a.means = resize(a.means, q.N)
	for i := range a.means {
		var sum float64
		for j, v := range q.Vectors[i*s.dim : (i+1)*s.dim] {
			sum += float64(v) * float64(q.screen.centroids.mean[j]) // exact
		}
		a.means[i] = sum
	}
	a.rows = resize(a.rows, (q.N+31)/32*s.codec.Centroids.K)
	q.computeApproxUnits()
}

// setCoarseUnits computes the factors that turn sums into bytes of Approx and words of level Fast.
func (q *query) setCoarseUnits() {
	x, a := &q.screen, &q.approx
	if q.algorithmFor(kernels.Fast) == byTiles {
		q.buildOnce(builtTiles, (*query).buildTiles)
	}
	q.setWordFactors()
	q.built[builtWords].Store(true) // by CentroidScores
	w := &q.words
	x.units = resize(x.units, len(w.mul))
	for g := range x.units {
		u := &x.units[g]
		*u = tier.CoarseUnits{AddBytes: a.add[g], LowWords: w.low[g], Bias: w.bias}
		for lane := range u.Limits {
			u.Limits[lane] = float32(math.Inf(1))
			if i := 32*g + lane; i < q.N {
				u.MulBytes[lane] = float32(float64(a.mul[g][lane]) * x.tokens[i].unit)
				u.MulWords[lane] = float32(float64(w.mul[g][lane]) * x.tokens[i].unit)
			}
		}
	}
}

// byteProducts returns the sums of a group of query tokens with the centroids lo to hi, at
// most screenRows.
func (q *query) byteProducts(sc *screenScratch, g, lo, hi int) [][32]float32 {
	s, x := q.scorer, &q.screen
	c, n := x.centroids, hi-lo
	if c.levels != nil {
		size, first := c.stride*32, min(lo, s.codec.Centroids.K-tier.ScreenRows)
		n := max(n, tier.ScreenRows) // at the end of all, some before lo
		levels, panel := c.levels[first*c.stride:(first+n)*c.stride], x.panel[g*size:(g+1)*size]
		s.loops.Screen(sc.products[:n], levels, c.stride, panel, &x.start[g])
		return sc.products[lo-first : hi-first]
	}
	stride := x.vectors.Stride
	if g == 0 { // all groups at once
		lanes := (q.N + 31) &^ 31
		sc.plain = resize(sc.plain, n*(stride+s.dim)+2*lanes)
		rows := sc.plain[n*stride:][:n*s.dim]
		halves := kernels.Centroids{K: n, Dim: s.dim, Type: kernels.BF16, Data: c.halves[2*lo*s.dim : 2*hi*s.dim]}
		if s.loops.WidenBF16 != nil {
			s.loops.WidenBF16(rows, halves.Data)
		} else {
			halves.Rows(rows, 0, n)
		}
		ranges := sc.plain[n*(stride+s.dim):]
		s.loops.CentroidScores(sc.plain[:n*stride], rows, n, &x.vectors, ranges[:lanes], ranges[lanes:2*lanes], nil)
	}
	for r := range n {
		row := &sc.products[r]
		*row = [32]float32{}
		for i, v := range sc.plain[r*stride+32*g : r*stride+min(32*g+32, q.N)] {
			row[i] = v + x.tokens[32*g+i].z
		}
	}
	return sc.products[:n]
}

// screenScores is CentroidScores where S is screened: the bytes of Approx, the words of
// level Fast, and the best centroids.
func (q *query) screenScores(lo, hi int) {
	s, x := q.scorer, &q.screen
	if x.listLen == 0 {
		return
	}
	sc := s.screenPool.Get().(*screenScratch)
	groups, k := (q.N+31)/32, s.codec.Centroids.K
	best := q.acquireBestList()
	sc.units = append(sc.units[:0], x.units...)
	for t := range q.N {
		sc.units[t/32].Limits[t%32] = listLimit(best[(t+1)*x.listLen-1])
	}
	for c0 := lo; c0 < hi; c0 += screenRows {
		c1 := min(c0+screenRows, hi)
		var scales []float32
		if q.words.scales != nil {
			scales = q.words.scales[c0:c1]
		}
		for g := range groups {
			sums, units := q.byteProducts(sc, g, c0, c1), &sc.units[g]
			n := s.loops.Coarse(q.words.rows[g*k+c0:g*k+c1], q.approx.rows[g*k+c0:g*k+c1], sc.found[:c1-c0], sums, units, scales)
			for _, f := range sc.found[:n] {
				row, r := &sums[f>>32], uint32(c0)+uint32(f>>32)
				for columns := uint32(f); columns != 0; columns &= columns - 1 {
					i := bits.TrailingZeros32(columns)
					if v := row[i]; v > units.Limits[i] { // an earlier row may have raised it
						top := best[(32*g+i)*x.listLen : (32*g+i+1)*x.listLen]
						insertRanked(top, newRanked(r, v))
						units.Limits[i] = listLimit(top[len(top)-1])
					}
				}
			}
		}
	}
	s.screenPool.Put(sc)
	q.mu.Lock()
	x.freeLists = append(x.freeLists, best)
	q.mu.Unlock()
}

// listLimit returns the limit that a sum exceeds if it belongs before the last of a list or ties with it.
func listLimit(last ranked) float32 {
	if last == 0 {
		return float32(math.Inf(-1))
	}
	return last.scoreValue() - 1 // sums are integers
}

// Require implements [kernels.Query].
func (q *query) Require(c *kernels.Chunk, docs []uint32) {
	for i := range countDocs(c, docs) {
		lo, hi := tokenRange(c, docs, i)
		q.RequireTokens(c, lo, hi)
	}
}

// RequireTokens implements [kernels.Query].
func (q *query) RequireTokens(c *kernels.Chunk, lo, hi int) {
	switch {
	case !q.screen.enabled:
	case c.CodeBytes == 2:
		for codes := c.Codes[2*lo : 2*hi]; len(codes) >= 2; codes = codes[2:] {
			q.requireRow(uint32(codes[0]) | uint32(codes[1])<<8)
		}
	default:
		for t := lo; t < hi; t++ {
			q.requireRow(c.Code(t))
		}
	}
}

// requireRow notes that a row of S is needed.
func (q *query) requireRow(code uint32) {
	w, bit := &q.screen.neededRows[code/64], uint64(1)<<(code%64)
	if atomic.LoadUint64(w)&bit == 0 {
		atomic.OrUint64(w, bit)
	}
}

// rowsPerFill is how many rows of S are computed at once.
const rowsPerFill = 36

// Fill implements [kernels.Query]. Rows are computed in ascending order, with the bits
// of CentroidScores.
func (q *query) Fill(lo, hi int) {
	x := &q.screen
	if !x.enabled {
		return
	}
	sc := q.scorer.scratchPool.Get().(*scratch)
	sc.codes = sc.codes[:0]
	for w := lo / 64; 64*w < hi; w++ {
		missing := x.neededRows[w] &^ x.computedRows[w]
		if 64*w < lo {
			missing &= math.MaxUint64 << (lo % 64)
		}
		if 64*w+64 > hi {
			missing &= 1<<(hi%64) - 1
		}
		x.computedRows[w] |= missing
		for ; missing != 0; missing &= missing - 1 {
			sc.codes = append(sc.codes, uint32(64*w+bits.TrailingZeros64(missing)))
			if len(sc.codes) == rowsPerFill {
				q.computeListedRows(sc)
			}
		}
	}
	q.computeListedRows(sc)
	q.scorer.scratchPool.Put(sc)
}

// computeListedRows computes the rows of S that are listed.
func (q *query) computeListedRows(sc *scratch) {
	s, m := q.scorer, len(sc.codes)
	if m == 0 {
		return
	}
	lanes := (q.N + 31) &^ 31
	sc.lo, sc.hi = resize(sc.lo, lanes), resize(sc.hi, lanes)
	sc.floats = resize(sc.floats, rowsPerFill*s.dim)
	sc.rows = resize(sc.rows, rowsPerFill*q.Stride)
	// Rows lie far apart: loads that wait for none of the others fetch all of them at once.
	var sum byte
	for _, c := range sc.codes {
		for row := s.storedCentroids(int(c), int(c)+1); ; row = row[64:] {
			sum += row[0]
			if len(row) <= 64 {
				break
			}
		}
	}
	sc.fetched = sum
	for i, c := range sc.codes {
		s.readCentroids(sc.floats[i*s.dim:(i+1)*s.dim], int(c), int(c)+1)
	}
	s.loops.CentroidScores(sc.rows[:m*q.Stride], sc.floats[:m*s.dim], m, &q.QueryVectors, sc.lo, sc.hi, nil)
	for i, c := range sc.codes {
		copy(q.scores[int(c)*q.Stride:(int(c)+1)*q.Stride], sc.rows[i*q.Stride:(i+1)*q.Stride])
	}
	sc.codes = sc.codes[:0]
}
