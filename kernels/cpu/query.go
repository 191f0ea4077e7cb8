package cpu

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// query implements [kernels.Query]. The structures that only some searches need (the byte
// rows of Approx, the tables of each level) are built once, at first use.
type query struct {
	scorer *scorer
	tier.QueryVectors
	weights           []float32 // of each query token, never nil
	hasNegativeWeight bool

	scores []float32 // S, [K, Stride]
	mu     sync.Mutex
	lo, hi []float32 // range of each column of S; guarded by mu until Seal

	approx     approxRows
	ranges     []residualRange // of each query token
	fast       fastTables
	fine       fineTables
	tiles      tileQuery            // replaces fast on tiers with tiles
	fineTiles  fineTiles            // replaces fine on tiers with tiles
	words      rowWords             // S in 16 bits, for fast and tiles, and for all algorithms where S is screened
	levels     [2]levelQuery        // by kernels.Level
	shortfalls [2]kernels.Shortfall // by kernels.Bound
	alike      likeness             // scratch of computeShortfall
	screen     screenQuery          // replaces most of scores

	nibbles [2][16]tableRow // scratch of fillTables

	built [9]atomic.Bool // by builtApprox and so on
	ended func() bool    // see kernels.EarlyEnder. nil means that the query never ends early
}

// EndWith implements [kernels.EarlyEnder].
func (q *query) EndWith(ended func() bool) { q.ended = ended }

// endedAt reports whether the query has been ended early. Loops over query tokens call it
// for each token; it calls ended only once every endedInterval tokens.
func (q *query) endedAt(token int) bool {
	return token%endedInterval == endedInterval-1 && q.ended != nil && q.ended()
}

// endedInterval is the number of query tokens, of up to ten microseconds of work each,
// between two calls of ended.
const endedInterval = 64

// Indices of query.built: structures that are built at first use.
const (
	builtApprox = iota
	builtWords
	builtTiles
	builtFast
	builtFine
	builtLevels                   // for level Fast; the next one is for level Fine
	builtShort  = builtLevels + 2 // for bound Probable; the next one is for bound Worst
)

// NewQuery implements [kernels.Scorer].
func (s *scorer) NewQuery() kernels.Query { return &query{scorer: s} }

// Len implements [kernels.Query].
func (q *query) Len() int { return q.N }

// Scores implements [kernels.Query].
func (q *query) Scores() ([]float32, int) { return q.scores, q.Stride }

// Reset implements [kernels.Query].
func (q *query) Reset(vectors, weights []float32) error {
	dim := q.scorer.dim
	n := len(vectors) / dim
	if n == 0 || len(vectors) != n*dim {
		return fmt.Errorf("%w: query of %d values for dimension %d", kernels.ErrShape, len(vectors), dim)
	}
	if weights != nil && len(weights) != n {
		return fmt.Errorf("%w: %d weights for %d query tokens", kernels.ErrShape, len(weights), n)
	}
	for i, v := range vectors {
		if !isFinite(v) {
			return fmt.Errorf("%w: query token %d has %v in dimension %d", kernels.ErrShape, i/dim, v, i%dim)
		}
	}
	for i, w := range weights {
		if !isFinite(w) {
			return fmt.Errorf("%w: query token %d has weight %v", kernels.ErrShape, i, w)
		}
	}
	q.QueryVectors.Reset(vectors, dim)
	q.weights = append(q.weights[:0], weights...)
	for len(q.weights) < n {
		q.weights = append(q.weights, 1)
	}
	q.hasNegativeWeight = false
	for _, w := range q.weights {
		q.hasNegativeWeight = q.hasNegativeWeight || w < 0
	}
	q.scores = resize(q.scores, q.scorer.codec.Centroids.K*q.Stride)
	q.lo, q.hi = resize(q.lo, n), resize(q.hi, n)
	resetRanges(q.lo, q.hi)
	q.screen.enabled = false
	for i := range q.built {
		q.built[i].Store(false)
	}
	return nil
}

// isFinite reports whether v is neither infinite nor NaN, for which v−v is NaN.
func isFinite(v float32) bool { return v-v == 0 }

// resetRanges makes all ranges empty.
func resetRanges(lo, hi []float32) {
	for i := range lo {
		lo[i], hi[i] = float32(math.Inf(1)), float32(math.Inf(-1))
	}
}

// centroidBlock is the number of values of a block of converted centroids: 16 KiB, half
// of a usual L1 cache.
const centroidBlock = 4 << 10

// CentroidScores implements [kernels.Query].
func (q *query) CentroidScores(lo, hi int) {
	if q.screen.enabled {
		q.screenScores(lo, hi)
		return
	}
	dim := q.scorer.dim
	sc := q.scorer.scratchPool.Get().(*scratch)
	block := max((centroidBlock/dim+11)/12*12, 12) // centroids; loops take 12 at a time
	sc.floats = resize(sc.floats, block*dim)
	lanes := (q.N + 31) &^ 31
	sc.lo, sc.hi = resize(sc.lo, lanes), resize(sc.hi, lanes)
	resetRanges(sc.lo, sc.hi)
	for c0 := lo; c0 < hi; c0 += block {
		c1 := min(c0+block, hi)
		q.scorer.readCentroids(sc.floats, c0, c1)
		rows, next := q.scores[c0*q.Stride:c1*q.Stride], q.scorer.storedCentroids(c1, min(c1+block, hi))
		q.scorer.loops.CentroidScores(rows, sc.floats, c1-c0, &q.QueryVectors, sc.lo, sc.hi, next)
	}
	q.mu.Lock()
	for i := range q.lo {
		q.lo[i], q.hi[i] = min(q.lo[i], sc.lo[i]), max(q.hi[i], sc.hi[i])
	}
	q.mu.Unlock()
	q.scorer.scratchPool.Put(sc)
}

// storedCentroids returns the bytes of the centroids lo to hi, not converted.
func (s *scorer) storedCentroids(lo, hi int) []byte {
	c := &s.codec.Centroids
	width := len(c.Data) / c.K
	return c.Data[lo*width : hi*width]
}

// readCentroids writes the centroids lo to hi as float32 into dst.
func (s *scorer) readCentroids(dst []float32, lo, hi int) {
	c := &s.codec.Centroids
	dst = dst[:(hi-lo)*c.Dim]
	switch l := s.loops; {
	case c.Type == kernels.BF16 && l.WidenBF16 != nil:
		l.WidenBF16(dst, c.Data[2*lo*c.Dim:2*hi*c.Dim])
	case c.Type == kernels.F16 && l.WidenF16 != nil:
		l.WidenF16(dst, c.Data[2*lo*c.Dim:2*hi*c.Dim])
	default:
		c.Rows(dst, lo, hi)
	}
}

// Seal implements [kernels.Query].
func (q *query) Seal() {
	if !q.usesByteProducts() { // else Screen has computed them
		q.computeResidualRanges()
	}
}

// computeResidualRanges computes the residual range of each query token. It needs the
// ranges of the columns of S.
func (q *query) computeResidualRanges() {
	q.ranges = resize(q.ranges, q.N)
	for i := range q.ranges {
		if q.endedAt(i) {
			return
		}
		q.ranges[i] = q.computeResidualRange(i)
	}
}

// buildOnce builds a structure of the query, such as builtApprox, unless it exists.
// Goroutines that need it at the same time wait for one to build it.
func (q *query) buildOnce(structure int, build func(*query)) {
	if q.built[structure].Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.built[structure].Load() {
		build(q)
		q.built[structure].Store(true)
	}
}

// Limits of one call of a loop. The garbage collector cannot interrupt assembly, so a call
// should take less than some 200 µs.
const (
	callTokens  = 4096    // tokens
	callLookups = 1 << 18 // rows of tables that are read
	callDocs    = 256     // documents
)

// callSize returns the number of tokens of one call that reads n table rows for each.
func callSize(n int) int { return max(min(callTokens, callLookups/n), 1) }

// nextBatch returns the token ranges of the documents for the next call, from the i-th of n
// on: as many as have at most size tokens together, or one longer document.
func (sc *scratch) nextBatch(c *kernels.Chunk, docs []uint32, i, n, size int) [][2]uint32 {
	r := sc.ranges[:0]
	for total := 0; i < n && len(r) < callDocs; i++ {
		lo, hi := tokenRange(c, docs, i)
		if total += hi - lo; total > size && len(r) > 0 {
			break
		}
		r = append(r, [2]uint32{uint32(lo), uint32(hi)})
	}
	return r
}

// rangesOfCall returns the token ranges of the j-th call for a batch, or nil after the last. A
// batch is one call, except for a document of more than size tokens, which is alone in its
// batch and cut into calls of size tokens.
func (sc *scratch) rangesOfCall(batch [][2]uint32, j, size int) [][2]uint32 {
	lo, hi := int(batch[0][0]), int(batch[0][1])
	if len(batch) > 1 || hi-lo <= size {
		if j > 0 {
			return nil
		}
		return batch
	}
	if lo += j * size; lo >= hi {
		return nil
	}
	sc.cutRange[0] = [2]uint32{uint32(lo), uint32(min(lo+size, hi))}
	return sc.cutRange[:]
}

// Masks for several small integers in the lanes of a uint64, as in package portable.
const (
	lanes16   = 0x0001_0001_0001_0001 // 1 in each 16-bit lane
	even16    = 0x0000_ffff_0000_ffff // lanes 0 and 2
	lanes32   = 0x0000_0001_0000_0001 // 1 in each 32-bit lane
	top16     = 0x8000_8000_8000_8000 // the top bit of each lane
	evenBytes = 0x00ff_00ff_00ff_00ff
)

// maxLanes16 returns the maxima of 16-bit lanes whose top bits are 0.
func maxLanes16(a, b uint64) uint64 {
	m := ((a | top16) - b) & top16
	return b ^ (a^b)&(m-m>>15)
}

// sumBytes returns the sum of the eight bytes of a word.
func sumBytes(v uint64) uint64 {
	v = v&evenBytes + v>>8&evenBytes
	return v * lanes16 >> 48
}

// resize returns a slice of length n with undefined contents: s itself, resliced, if its
// capacity allows.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
