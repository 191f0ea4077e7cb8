package compressed

import (
	"math"
	"math/bits"
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
	room := make([]uint64, 2*len(t.ids))
	keys := room[:len(t.ids)] // the best score is the smallest key, then the lowest number
	for i, s := range t.fine {
		b := math.Float32bits(s + 0) // −0 is 0
		if b>>31 == 0 {
			b = ^b &^ (1 << 31)
		}
		keys[i] = uint64(b)<<32 | uint64(t.ids[i])
	}
	keys = sorted(keys, room[len(keys):])
	k := min(t.query.K, len(keys))
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
	return docs, scores, 0, k == t.query.K && scores[k-1] < t.limit
}

// sorted sorts keys into room, of the same length. Scores are spread, so that of 256
// equal steps between the least and the most each has a few keys, which are sorted by
// themselves: in less than half of the time of one sort of all, whose branches are
// guessed wrong.
func sorted(keys, room []uint64) []uint64 {
	if len(keys) < 32 {
		slices.Sort(keys)
		return keys
	}
	least, most := keys[0], keys[0]
	for _, k := range keys {
		least, most = min(least, k), max(most, k)
	}
	shift := max(bits.Len64(most-least)-8, 0)
	var end [256]int // of each step; where its next key belongs, until all are there
	for _, k := range keys {
		end[(k-least)>>shift]++
	}
	sum := 0
	for i, n := range end {
		end[i] = sum
		sum += n
	}
	for _, k := range keys {
		i := (k - least) >> shift
		room[end[i]] = k
		end[i]++
	}
	begin := 0
	for _, e := range end {
		if e-begin > 1 {
			slices.Sort(room[begin:e])
		}
		begin = e
	}
	return room
}
