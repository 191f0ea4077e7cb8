package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// probeRows is the number of rows of S that are compared with the same limits.
const probeRows = 256

// TopCentroids implements [kernels.Query]. It reads S once, in groups of 32 query tokens. A row
// matters only if it exceeds, for some query token, the last of the n best found so far.
// Such rows become rare soon, and a vector loop finds them.
func (q *query) TopCentroids(dst []kernels.CentroidScore, n int) {
	if q.screen.enabled {
		q.topScreened(dst, n)
		return
	}
	k := q.scorer.codec.Centroids.K
	var found [probeRows]uint32
	for g := 0; g < q.N; g += 32 {
		if q.endedAt(g + 31) {
			clear(dst[g*n:]) // so that all numbers are of centroids
			return
		}
		// Lists begin with scores of −∞. Unused lanes have a limit that no score exceeds.
		lanes := min(32, q.N-g)
		limits := &[32]float32{}
		for i := range limits {
			limits[i] = float32(math.Inf(1))
			if i < lanes {
				limits[i] = float32(math.Inf(-1))
				for j := range n {
					dst[(g+i)*n+j] = kernels.CentroidScore{Score: limits[i]}
				}
			}
		}
		// Insert the scores that exceed the limit of their query token.
		for c := 0; c < k; {
			rows := min(probeRows, k-c)
			scores := q.scores[c*q.Stride+g:]
			for _, r := range found[:q.scorer.loops.Above(found[:rows], scores, q.Stride, lanes, limits)] {
				for i, v := range scores[int(r)*q.Stride:][:lanes] {
					if v > limits[i] {
						scored := kernels.CentroidScore{Centroid: uint32(c) + r, Score: v}
						limits[i] = insertScore(dst[(g+i)*n:(g+i+1)*n], scored)
					}
				}
			}
			c += rows
		}
	}
}

// insertScore inserts s, which is better than the last entry of top, drops that entry, and
// returns the score of the new last one.
func insertScore(top []kernels.CentroidScore, s kernels.CentroidScore) float32 {
	i := len(top) - 1
	for ; i > 0 && top[i-1].Score < s.Score; i-- {
		top[i] = top[i-1]
	}
	top[i] = s
	return top[len(top)-1].Score
}

// ranked is a centroid and its score in one number, which orders them: a larger number has
// a higher score or, at equal scores, a lower centroid. 0 stands for no centroid.
//
// The upper half is the score as an integer of the same order: the bits of a float32 with
// the sign bit flipped, and for negative numbers all other bits, too. The lower half is the
// complement of the centroid.
type ranked uint64

func newRanked(centroid uint32, score float32) ranked {
	b := math.Float32bits(score + 0) // adding 0 turns −0 into 0
	return ranked(b^(uint32(int32(b)>>31)|1<<31))<<32 | ranked(^centroid)
}

func (r ranked) centroid() uint32 { return ^uint32(r) }

func (r ranked) scoreValue() float32 {
	b := uint32(r >> 32)
	return math.Float32frombits(b ^ (uint32(int32(^b)>>31) | 1<<31))
}

// insertRanked inserts r into top, which is in descending order, and drops the last entry.
// It does nothing if r is not above that one.
func insertRanked(top []ranked, r ranked) {
	i := len(top) - 1
	if top[i] >= r {
		return
	}
	for ; i > 0 && top[i-1] < r; i-- {
		top[i] = top[i-1]
	}
	top[i] = r
}

// acquireBestList returns lists of the best centroids, [query tokens, listLen], that a range
// of centroids may add to: lists that an earlier range has released, or else empty ones. So
// there are as many as ranges that are screened at the same time. The caller appends them to
// freeLists when it is done.
func (q *query) acquireBestList() []ranked {
	x := &q.screen
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(x.freeLists); n > 0 {
		best := x.freeLists[n-1]
		x.freeLists = x.freeLists[:n-1]
		return best
	}
	if x.listsUsed == len(x.bestLists) {
		x.bestLists = append(x.bestLists, nil)
	}
	best := resize(x.bestLists[x.listsUsed], q.N*x.listLen)
	clear(best)
	x.bestLists[x.listsUsed] = best
	x.listsUsed++
	return best
}

// topScreened is TopCentroids where S is screened: it computes the scores of the listLen best
// centroids by products of bytes, and writes the n best by these scores.
func (q *query) topScreened(dst []kernels.CentroidScore, n int) {
	// Merge the lists of all ranges into the first.
	x := &q.screen
	if x.listsUsed == 0 {
		q.acquireBestList()
	}
	best := x.bestLists[0]
	for _, other := range x.bestLists[1:x.listsUsed] {
		for i, c := range other {
			t := i / x.listLen
			insertRanked(best[t*x.listLen:(t+1)*x.listLen], c)
		}
	}
	// Compute the rows of S of these centroids.
	for _, c := range best {
		if c != 0 {
			q.requireRow(c.centroid())
		}
	}
	q.ComputeRequiredRows(0, q.scorer.codec.Centroids.K)
	// Sort each list again, by scores of S, and write the first n.
	for t := range q.N {
		top := best[t*x.listLen : (t+1)*x.listLen]
		for i, c := range top {
			if c != 0 {
				c = newRanked(c.centroid(), q.scores[int(c.centroid())*q.Stride+t])
				top[i] = 0
				insertRanked(top[:i+1], c)
			}
		}
		for i, c := range top[:n] {
			dst[t*n+i] = kernels.CentroidScore{Centroid: c.centroid(), Score: float32(math.Inf(-1))}
			if c != 0 {
				dst[t*n+i].Score = c.scoreValue()
			}
		}
	}
	x.listsUsed, x.freeLists = 1, append(x.freeLists[:0], best)
}
