package cpu

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/internal/tier"
)

// query implements [kernels.Query]. What only some searches need (the byte rows of
// Approx, the tables of each level) is built at first use, once.
type query struct {
	scorer *scorer
	tier.QueryVectors
	weights []float32 // n, never nil
	// negative says that some weight is below 0.
	hasNegativeWeight bool

	scores []float32 // [K, stride]
	mu     sync.Mutex
	lo, hi []float32 // range of each column of scores; guarded by mu until Seal

	approx     approxRows
	ranges     []residualRange // of each query token
	fast       fastTables
	fine       fineTables
	tiles      tileQuery            // in place of fast
	fineTiles  fineTiles            // in place of fine
	words      rowWords             // S, for fast and tile, and where it is screened for others
	levels     [2]levelQuery        // by level
	shortfalls [2]kernels.Shortfall // by bound
	alike      likeness             // scratch of short
	screen     screenQuery          // in place of most of scores

	nibbles [2][16]tableRow // scratch of fillTables

	built [9]atomic.Bool
	ended func() bool // nil: never
}

// EndWith implements [kernels.Ender].
func (q *query) EndWith(ended func() bool) { q.ended = ended }

// endedAt tells, every so many query tokens, whether the query is given up: some take ten
// microseconds.
func (q *query) endedAt(token int) bool {
	return token%endedInterval == endedInterval-1 && q.ended != nil && q.ended()
}

const endedInterval = 64

// parts of a query that are built at first use.
const (
	builtApprox = iota
	builtWords
	builtTiles
	builtFast
	builtFine
	builtLevels                   // and the next, by level
	builtShort  = builtLevels + 2 // and the next, by bound
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

func isFinite(v float32) bool { return v-v == 0 }

func resetRanges(lo, hi []float32) {
	for i := range lo {
		lo[i], hi[i] = float32(math.Inf(1)), float32(math.Inf(-1))
	}
}

// centroidBlock is the number of values of a block of converted centroids.
const centroidBlock = 4 << 10

// CentroidScores implements [kernels.Query].
func (q *query) CentroidScores(lo, hi int) {
	if q.screen.enabled {
		q.screenScores(lo, hi)
		return
	}
	dim := q.scorer.dim
	sc := q.scorer.scratchPool.Get().(*scratch)
	block := max((centroidBlock/dim+11)/12*12, 12)
	sc.floats = resize(sc.floats, block*dim)
	lanes := (q.N + 31) &^ 31
	sc.lo, sc.hi = resize(sc.lo, lanes), resize(sc.hi, lanes)
	resetRanges(sc.lo, sc.hi)
	for c0 := lo; c0 < hi; c0 += block {
		c1 := min(c0+block, hi)
		q.scorer.readCentroids(sc.floats, c0, c1)
		q.scorer.loops.CentroidScores(q.scores[c0*q.Stride:c1*q.Stride], sc.floats, c1-c0, &q.QueryVectors, sc.lo, sc.hi, q.scorer.storedCentroids(c1, min(c1+block, hi)))
	}
	q.mu.Lock()
	for i := range q.lo {
		q.lo[i], q.hi[i] = min(q.lo[i], sc.lo[i]), max(q.hi[i], sc.hi[i])
	}
	q.mu.Unlock()
	q.scorer.scratchPool.Put(sc)
}

// storedCentroids is the centroids lo to hi as they are stored.
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
	if !q.usesByteProducts() { // which has needed the ranges before
		q.computeResidualRanges()
	}
}

func (q *query) computeResidualRanges() {
	q.ranges = resize(q.ranges, q.N)
	for i := range q.ranges {
		if q.endedAt(i) {
			return
		}
		q.ranges[i] = q.computeResidualRange(i)
	}
}

// buildOnce builds a part of the query unless that has happened.
func (q *query) buildOnce(part int, build func(*query)) {
	if q.built[part].Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.built[part].Load() {
		build(q)
		q.built[part].Store(true)
	}
}

// One call of a loop is to take less than some 200 µs, because the garbage
// collector cannot interrupt assembly: it looks up at most callLookups rows of
// tables, for at most callTokens tokens.
const (
	callTokens  = 4096
	callLookups = 1 << 18
)

// callSize is the number of tokens of one call that looks n rows up for each.
func callSize(n int) int { return max(min(callTokens, callLookups/n), 1) }

// callDocs is the largest number of documents of one call.
const callDocs = 256

// nextBatch lists the token ranges of the documents from the i-th on, as many as
// go into one call of size tokens, one at least.
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

// rangesOfCall returns what the j-th call of a batch is to do, nil after the last. A
// document too long for one call, always alone, is cut.
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

// Several small integers in the lanes of a uint64, as in package portable.

const (
	lanes16   = 0x0001_0001_0001_0001 // 1 in each 16-bit lane
	even16    = 0x0000_ffff_0000_ffff // lanes 0 and 2
	lanes32   = 0x0000_0001_0000_0001 // 1 in each 32-bit lane
	top16     = 0x8000_8000_8000_8000 // the top bit of each lane
	evenBytes = 0x00ff_00ff_00ff_00ff
)

// maxLanes16 is the maximum of 16-bit lanes whose top bits are 0.
func maxLanes16(a, b uint64) uint64 {
	m := ((a | top16) - b) & top16
	return b ^ (a^b)&(m-m>>15)
}

// sumBytes adds the eight bytes of a word.
func sumBytes(v uint64) uint64 {
	v = v&evenBytes + v>>8&evenBytes
	return v * lanes16 >> 48
}

// resize returns a slice of length n, in s where that is large enough. Its
// contents are undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
