package cpu

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/plaid-ir/plaid/kernels"
)

// RequireRows implements [kernels.Query].
func (q *query) RequireRows(c *kernels.Chunk, docs []uint32) {
	for i := range countDocs(c, docs) {
		lo, hi := tokenRange(c, docs, i)
		q.RequireRowsOfTokens(c, lo, hi)
	}
}

// RequireRowsOfTokens implements [kernels.Query].
func (q *query) RequireRowsOfTokens(c *kernels.Chunk, lo, hi int) {
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

// requireRow notes that the row of S of a centroid is needed.
func (q *query) requireRow(code uint32) {
	w, bit := &q.screen.neededRows[code/64], uint64(1)<<(code%64)
	if atomic.LoadUint64(w)&bit == 0 { // most rows are noted already: a load shares the cache line
		atomic.OrUint64(w, bit)
	}
}

// rowsPerFill is the number of rows of S that one call of the loop computes.
const rowsPerFill = 36

// ComputeRequiredRows implements [kernels.Query]. It computes rows in ascending order, with the bits of
// CentroidScores.
func (q *query) ComputeRequiredRows(lo, hi int) {
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

// computeListedRows computes the rows of S that sc.codes lists, and empties the list.
func (q *query) computeListedRows(sc *scratch) {
	s, m := q.scorer, len(sc.codes)
	if m == 0 {
		return
	}
	lanes := (q.N + 31) &^ 31
	sc.lo, sc.hi = resize(sc.lo, lanes), resize(sc.hi, lanes)
	sc.floats = resize(sc.floats, rowsPerFill*s.dim)
	sc.rows = resize(sc.rows, rowsPerFill*q.Stride)
	// Centroids are far apart in memory. Loads that do not depend on one another fetch all
	// of them into the cache at once.
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
