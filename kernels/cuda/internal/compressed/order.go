package compressed

import (
	"math"
	"slices"
)

// fineError bounds the error of a fine score relative to the sum of
// |weight|·|q|: float32 sums of products of vectors of about unit length.
const fineError = 2e-5

// firstSlack is how much lower the k-th best score by the scan is taken to be
// than it is, in errors of the scan: the k-th best fine score is seldom below
// that, and if it is the search is repeated with lastSlack, which leaves no doubt.
const firstSlack, lastSlack = 0.25, 2.5

// order gives the K best by fine scores. more is how many documents have to be
// listed for that, 0 if those were enough; doubtful says that one that was not
// to be listed may belong among them.
func (t *request) order() (docs []uint32, scores []float32, more int, doubtful bool) {
	keys := make([]uint64, len(t.ids)) // the best score is the smallest key, then the lowest number
	for i, s := range t.fine {
		b := math.Float32bits(s + 0) // −0 is 0
		if b>>31 == 0 {
			b = ^b &^ (1 << 31)
		}
		keys[i] = uint64(b)<<32 | uint64(t.ids[i])
	}
	slices.Sort(keys)
	k := min(t.q.K, len(keys))
	docs, scores = make([]uint32, k), make([]float32, k)
	for i, key := range keys[:k] {
		b := uint32(key >> 32)
		if b>>31 == 0 {
			b = ^b &^ (1 << 31)
		}
		docs[i], scores[i] = uint32(key), math.Float32frombits(b)
	}
	if t.found > len(t.ids) {
		return docs, scores, t.found, false
	}
	return docs, scores, 0, k == t.q.K && scores[k-1] < t.limit
}
