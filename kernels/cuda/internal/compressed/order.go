package compressed

import (
	"math"
	"slices"
)

// fineError bounds the error of a fine score relative to the sum of
// |weight|·|q|: float32 products and sums of vectors of about unit length.
const fineError = 2e-5

// boundShare is the share of the bound that the error of a scan is taken to
// reach: all of it, but for scans with FP8 operands. Their bound adds up the
// largest error of every rounding; real ones cancel, the more the more tokens a
// query has. The share is what was seen with a margin, not a proof: over 1,800
// random shapes of all kinds the largest was 0.37, and 0.16 where the number of
// query tokens was noted (TestGPUAgainstOracle logs it). Should it be exceeded, a
// document whose score is within the error of the k-th may be missed.
func (s *shape) boundShare(tokens int) float64 {
	if s.mode <= halfMode {
		return 1
	}
	return 0.25 + 0.25/math.Sqrt(float64(tokens))
}

// order gives the K best by fine scores. doubtful says that a document that has
// none might belong among them.
func (t *request) order() (docs []uint32, scores []float32, doubtful bool) {
	n := len(t.ids)
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int {
		switch {
		case t.fine[a] > t.fine[b]:
			return -1
		case t.fine[a] < t.fine[b]:
			return 1
		case t.ids[a] < t.ids[b]:
			return -1
		}
		return 1
	})
	k := min(t.q.K, n)
	docs, scores = make([]uint32, k), make([]float32, k)
	for i := range k {
		docs[i], scores[i] = t.ids[at[i]], t.fine[at[i]]
	}
	if n < t.want || n >= t.docs { // nothing is left out
		return docs, scores, false
	}
	// The k-th best fine score, and the most that a document without one can have.
	kth, most := float64(scores[k-1]), float64(t.coarse[n-1])+t.at.shape.boundShare(len(t.q.Vectors)/t.corpus.Codec().Dim())*float64(t.bound)
	return docs, scores, kth-fineError*t.magnitude() < most
}

// magnitude is the sum of |weight|·|q| of a query.
func (t *request) magnitude() float64 {
	dim := t.corpus.Codec().Dim()
	sum := 0.0
	for s := range len(t.q.Vectors) / dim {
		square := 0.0
		for _, v := range t.q.Vectors[s*dim : (s+1)*dim] {
			square += float64(v) * float64(v)
		}
		w := 1.0
		if t.q.Weights != nil {
			w = math.Abs(float64(t.q.Weights[s]))
		}
		sum += w * math.Sqrt(square)
	}
	return sum
}
