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
	k := q.s.codec.Centroids.K
	var found [probeRows]uint32
	for g := 0; g < q.N; g += 32 {
		if q.over(g + 31) {
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
			for _, r := range found[:q.s.loops.Above(found[:rows], scores, q.Stride, lanes, limits)] {
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
