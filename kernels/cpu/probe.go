package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// probeRows is the number of rows of S that are compared with the same limits.
const probeRows = 256

// Top implements [kernels.Query]. S is read once: rows that exceed the worst of the
// n best so far for some query token are few after the first ones, and are
// found many columns at a time.
func (q *query) Top(dst []kernels.CentroidScore, n int) {
	if q.screen.enabled {
		q.topScreened(dst, n)
		return
	}
	k := q.scorer.codec.Centroids.K
	var found [probeRows]uint32
	for g := 0; g < q.N; g += 32 {
		if q.endedAt(g + 31) {
			clear(dst[g*n:]) // what is there may be numbers of no centroids
			return
		}
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
		for c := 0; c < k; {
			rows := min(probeRows, k-c)
			scores := q.scores[c*q.Stride+g:]
			for _, r := range found[:q.scorer.loops.Above(found[:rows], scores, q.Stride, lanes, limits)] {
				for i, v := range scores[int(r)*q.Stride:][:lanes] {
					if v > limits[i] {
						limits[i] = insertScore(dst[(g+i)*n:(g+i+1)*n], kernels.CentroidScore{Centroid: uint32(c) + r, Score: v})
					}
				}
			}
			c += rows
		}
	}
}

// insertScore puts s, which is better than the last of top, in its place, and
// returns the score of what is the last then.
func insertScore(top []kernels.CentroidScore, s kernels.CentroidScore) float32 {
	i := len(top) - 1
	for ; i > 0 && top[i-1].Score < s.Score; i-- {
		top[i] = top[i-1]
	}
	top[i] = s
	return top[len(top)-1].Score
}

// ranked is a centroid and its score in one number. A larger number has a higher score or,
// at equal scores, a lower centroid. 0 stands for no centroid.
type ranked uint64

func newRanked(centroid uint32, score float32) ranked {
	b := math.Float32bits(score + 0) // not −0
	return ranked(b^(uint32(int32(b)>>31)|1<<31))<<32 | ranked(^centroid)
}

func (r ranked) centroid() uint32 { return ^uint32(r) }

func (r ranked) scoreValue() float32 {
	b := uint32(r >> 32)
	return math.Float32frombits(b ^ (uint32(int32(^b)>>31) | 1<<31))
}

// insertRanked puts r in its place in top, unless it is behind all of them.
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

// acquireBestList returns the best centroids that an earlier range has found and nobody adds to,
// or none: as many lists are made as ranges are screened at a time.
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

// topScreened is Top where S is screened: of the best by products of bytes, those that
// are by S.
func (q *query) topScreened(dst []kernels.CentroidScore, n int) {
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
	for _, c := range best {
		if c != 0 {
			q.requireRow(c.centroid())
		}
	}
	q.Fill(0, q.scorer.codec.Centroids.K)
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
