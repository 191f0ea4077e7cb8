// Package topk orders documents by score and selects the best of them.
package topk

import "slices"

// Scored is a document with a score.
type Scored struct {
	Doc   uint32
	Score float32
}

// Before reports whether a comes before b in results: by descending score, then by number, which is
// the order of insertion.
func (a Scored) Before(b Scored) bool {
	return a.Score > b.Score || a.Score == b.Score && a.Doc < b.Doc
}

// Order compares by [Scored.Before], for sorting.
func Order(a, b Scored) int {
	switch {
	case a.Before(b):
		return -1
	case b.Before(a):
		return 1
	}
	return 0
}

// maxRounds is more than quickselect needs except for rare inputs, which are sorted instead.
const maxRounds = 64

// Best moves the n best to the front, in any order, and returns them. It is quickselect with the
// median of three. The order is total, so the set is unique.
func Best(s []Scored, n int) []Scored {
	if n >= len(s) {
		return s
	}
	lo, hi := 0, len(s)
	for rounds := 0; hi-lo > 16 && rounds < maxRounds; rounds++ {
		a, b, c := s[lo], s[(lo+hi)/2], s[hi-1]
		if b.Before(a) {
			a, b = b, a
		}
		if c.Before(b) {
			b = c
			if b.Before(a) {
				b = a
			}
		}
		i, j := lo, hi-1
		for i <= j {
			for s[i].Before(b) {
				i++
			}
			for b.Before(s[j]) {
				j--
			}
			if i <= j {
				s[i], s[j] = s[j], s[i]
				i++
				j--
			}
		}
		switch {
		case n <= j+1:
			hi = j + 1
		case n >= i:
			lo = i
		default:
			return s[:n]
		}
	}
	slices.SortFunc(s[lo:hi], Order)
	return s[:n]
}
