package cpu

import (
	"math"
	"math/bits"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// Screening: where there are many centroids, most rows of S need little precision. They
// serve to find the best centroids of a query token, for the bytes of Approx and for the
// words of level Fast. So centroids and query are rounded to bytes, as in filter.go, and S
// is approximated by their products. Rows of S in float32 are computed only for the best
// centroids, and for the centroids of documents that are scored at level Fine. With
//
//	c = m + s ⊙ l + ε,    s ⊙ q = u·n + δ    and    ⟨q, m⟩ = u·z + ζ,
//
// for levels l of −128 to 127, integers n of ±63 and an integer z, ⟨q, c⟩ is
// u·(z + ⟨n, l⟩) + ζ + ⟨δ, l⟩ + ⟨q, ε⟩. The terms in parentheses are a sum of integers that
// float32 represents exactly, so that tiers with and without products of bytes agree to the
// bit. (Integers of ±63 let two products of bytes fit 16 bits, in which AVX2 adds them.) The
// other terms are the error of S.

const (
	// minScreenCentroids is the smallest number of centroids for which screening pays.
	minScreenCentroids = 1 << 12
	// maxScreenSum bounds the magnitude of sums: float32 represents integers up to 2²⁴.
	maxScreenSum = 1 << 24
	// maxScreenDim is the largest dimension whose products, of at most 63·128 each, leave
	// 2²⁰ of maxScreenSum to z.
	maxScreenDim = (maxScreenSum - 1<<20) / (63 * 128) &^ 15
	// maxScreenBest is the largest number of best centroids of a query token.
	maxScreenBest = 48
	// screenRows is the number of rows of a block: its products stay in L1.
	screenRows = 192
)

// byteCentroids has the centroids rounded to bytes.
type byteCentroids struct {
	stride int       // bytes of a row of levels: a multiple of 4
	levels []byte    // l + 128, [K, stride]. nil for tiers that do not multiply bytes
	halves []byte    // l as bfloat16, [K, dim]. nil for tiers that multiply bytes
	step   []float32 // s, [dim]
	middle []float32 // m, [dim]
	usable bool      // false if some values leave the range of float32

	maxLevelNorm, maxErrorNorm float64   // the largest ‖l‖ and ‖ε‖ of a centroid
	maxErrors                  []float64 // the largest |ε| of each dimension
	mean                       []float32 // of all centroids, [dim]
}

// newByteCentroids rounds the centroids. It takes some 30 ms for 65,536 centroids.
func (s *scorer) newByteCentroids() *byteCentroids {
	// 1. The range and the mean of each dimension.
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
	// 2. Steps and middles: levels −128 to 127 span the range.
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
	// 3. The levels, in the form that the tier multiplies, and the norms of the errors.
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
				levelSquares, errorSquares = levelSquares+l*l, errorSquares+float64(e*e)
				c.maxErrors[j] = max(c.maxErrors[j], e, -e)
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

// screenQuery has the rounded query, and the state of its screening.
type screenQuery struct {
	enabled   bool
	listLen   int // length of the lists of best centroids. 0 means that S is not by products of bytes
	centroids *byteCentroids

	integers []float32          // n, [query tokens, dim]
	panel    []byte             // n, [groups, stride/4, 32, 4]
	start    [][32]int32        // z − 128·Σn, [groups]: levels in bytes have 128 added
	vectors  tier.QueryVectors  // n, for tiers that do not multiply bytes
	tokens   []screenToken      // by query token
	units    []tier.CoarseUnits // [groups]

	bestLists    [][]ranked // lists of the best centroids by bytes, [query tokens, listLen]; guarded by mu
	listsUsed    int        // number of bestLists of this query
	freeLists    [][]ranked // lists that no range adds to at present; guarded by mu
	neededRows   []uint64   // a bit for each row of S that RequireRows has noted
	computedRows []uint64   // a bit for each row of S that ComputeRequiredRows has computed
}

// screenToken has the unit of a rounded query token, and bounds of its errors.
type screenToken struct {
	unit       float64 // u: S ≈ unit·sum
	z          float32 // added to the sum
	maxError   float64 // bounds the error of unit·sum
	spread     float64 // √Σh² of the roundings ±h of the query, a part of maxError
	systematic float64 // bounds the part of maxError that is by rounding neither query nor centroids
}

// screenScratch is the work space of one call.
type screenScratch struct {
	products [screenRows][32]float32
	plain    []float32          // products of all groups, rows and ranges, if the tier does not multiply bytes
	units    []tier.CoarseUnits // with the limits of the range
	found    [screenRows]uint64 // rows that exceed a limit, see tier.Tokens.Coarse
}

// Screen implements [kernels.Query].
func (q *query) Screen(n int) bool {
	s, x := q.scorer, &q.screen
	k := s.codec.Centroids.K
	if n > 0 && (k < minScreenCentroids || n > maxScreenBest || s.dim > maxScreenDim || q.hasNegativeWeight) {
		return false
	}
	// 1. Bounds of S, ‖q‖·max‖c‖, replace its range, which is not known.
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
	// 2. No row of S is computed.
	x.enabled, x.listLen, x.listsUsed, x.freeLists = true, 0, 0, x.freeLists[:0]
	x.neededRows, x.computedRows = resize(x.neededRows, (k+63)/64), resize(x.computedRows, (k+63)/64)
	clear(x.neededRows)
	clear(x.computedRows)
	// 3. The rounded query and the units of bytes and words. A quarter and six more best
	// centroids than n are listed, because products of bytes do not order near ties.
	if n > 0 {
		x.listLen = min(n+n/4+6, k)
		q.roundVectors()
		for i, t := range x.tokens { // words are made of sums, which may exceed S by their error
			q.lo[i] -= float32(t.maxError)
			q.hi[i] += float32(t.maxError)
		}
		q.setApproxUnits()
		q.computeResidualRanges()
		q.setCoarseUnits()
		q.built[builtApprox].Store(true) // CentroidScores builds them
	}
	return true
}

// sumUnit returns the unit of the sums of query token i. 0 means that S is not by products
// of bytes.
func (x *screenQuery) sumUnit(i int) float64 {
	if !x.enabled || x.listLen == 0 {
		return 0
	}
	return x.tokens[i].unit
}

// usesByteProducts reports whether S of level Fast is by products of bytes.
func (q *query) usesByteProducts() bool { return q.screen.enabled && q.screen.listLen > 0 }

// roundVectors rounds the query tokens to integers, in the form that the tier multiplies,
// and bounds the errors.
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
		// The unit: the largest |s_j·q_j| becomes 63, and z leaves room in maxScreenSum for
		// products of 63·128 a dimension and for its own rounding, 1. A token that is too
		// small for a unit becomes 0.
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
		// The integers n, and the largest |δ|, Σδ² and Σ|δ|.
		var sum, z int32
		var maxRoundError, squareSum, errorSum float64
		for j := range v {
			component, n := float64(v[j])*float64(x.centroids.step[j]), int32(0)
			if unit > 0 {
				n = roundToUnits(component, unit)
			}
			roundError := math.Abs(component - float64(float64(n)*unit))
			maxRoundError = max(maxRoundError, roundError)
			squareSum += float64(roundError * roundError)
			errorSum += roundError
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
		// The errors: ζ and that of S in float32; ⟨δ, l⟩, by Cauchy and Schwarz or with
		// |l| ≤ 128; ⟨q, ε⟩, by Cauchy and Schwarz.
		norm := math.Sqrt(normSquare)
		systematic := math.Abs(mid-float64(float64(z)*unit)) + float64(s.dim+8)*eps*norm*s.maxCentroidNorm()
		queryError := min(math.Sqrt(squareSum)*x.centroids.maxLevelNorm, 128*errorSum)
		x.tokens[i] = screenToken{
			unit:       unit,
			z:          float32(z),
			systematic: systematic,
			spread:     maxRoundError * x.centroids.maxLevelNorm,
			maxError:   (systematic + queryError + norm*x.centroids.maxErrorNorm) * (1 + 1e-6),
		}
	}
	if !multipliesBytes {
		x.vectors.Reset(x.integers, s.dim)
	}
}

// setApproxUnits computes the units of the bytes of Approx. The mean of a column of S is
// the product of the query token with the mean of the centroids.
func (q *query) setApproxUnits() {
	s, a := q.scorer, &q.approx
	a.means = resize(a.means, q.N)
	for i := range a.means {
		var sum float64
		for j, v := range q.Vectors[i*s.dim : (i+1)*s.dim] {
			sum += float64(v) * float64(q.screen.centroids.mean[j]) // float64 represents the product exactly
		}
		a.means[i] = sum
	}
	a.rows = resize(a.rows, (q.N+31)/32*s.codec.Centroids.K)
	q.computeApproxUnits()
}

// setCoarseUnits computes the factors that turn sums into bytes of Approx and words of
// level Fast. Limits are infinite until screenScores sets them.
func (q *query) setCoarseUnits() {
	x, a := &q.screen, &q.approx
	if q.algorithmFor(kernels.Fast) == byTiles {
		q.buildOnce(builtTiles, (*query).buildTiles)
	}
	q.setWordFactors()
	q.built[builtWords].Store(true) // CentroidScores builds them
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

// byteProducts returns the sums of group g of query tokens with the centroids lo to hi, at
// most screenRows. For the same centroids, callers must begin with group 0: without products
// of bytes, it computes the sums of all groups.
func (q *query) byteProducts(sc *screenScratch, g, lo, hi int) [][32]float32 {
	s, x := q.scorer, &q.screen
	c, n := x.centroids, hi-lo
	if c.levels != nil {
		// The loop takes at least tier.ScreenRows rows: for the last ones, also some before lo.
		size, first := c.stride*32, min(lo, s.codec.Centroids.K-tier.ScreenRows)
		n := max(n, tier.ScreenRows)
		levels, panel := c.levels[first*c.stride:(first+n)*c.stride], x.panel[g*size:(g+1)*size]
		s.loops.Screen(sc.products[:n], levels, c.stride, panel, &x.start[g])
		return sc.products[lo-first : hi-first]
	}
	// Without products of bytes, the loop for S multiplies the integers as float32, for all
	// groups at once.
	stride := x.vectors.Stride
	if g == 0 {
		lanes := (q.N + 31) &^ 31
		sc.plain = resize(sc.plain, n*(stride+s.dim)+2*lanes)
		rows := sc.plain[n*stride:][:n*s.dim]
		data := c.halves[2*lo*s.dim : 2*hi*s.dim]
		halves := kernels.Centroids{K: n, Dim: s.dim, Type: kernels.BF16, Data: data}
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

// screenScores is CentroidScores where S is screened: it computes the bytes of Approx, the
// words of level Fast, and the best centroids of each query token.
func (q *query) screenScores(lo, hi int) {
	s, x := q.scorer, &q.screen
	if x.listLen == 0 {
		return
	}
	sc := s.screenPool.Get().(*screenScratch)
	groups, k := (q.N+31)/32, s.codec.Centroids.K
	// Sums that exceed the last of the best centroids so far are inserted into the lists.
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
			words, bytes := q.words.rows[g*k+c0:g*k+c1], q.approx.rows[g*k+c0:g*k+c1]
			n := s.loops.Coarse(words, bytes, sc.found[:c1-c0], sums, units, scales)
			for _, f := range sc.found[:n] { // a row, and a bit for each column above its limit
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

// listLimit returns the number that a sum must exceed to be inserted before the last entry
// of a list or to tie with it.
func listLimit(last ranked) float32 {
	if last == 0 {
		return float32(math.Inf(-1))
	}
	return last.scoreValue() - 1 // sums are integers
}
