package search

import "slices"

// scored is a document with a score.
type scored struct {
	doc   uint32
	score float32
}

// before is the order of results: score descending, then insertion order.
func (a scored) before(b scored) bool {
	return a.score > b.score || a.score == b.score && a.doc < b.doc
}

func order(a, b scored) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

// maxRounds is more than quickselect needs but for rare inputs, which are
// sorted then.
const maxRounds = 64

// best moves the n best to the front, in no order, and returns them. It is
// quickselect with the median of three; the order is total, so the set is
// unique.
func best(s []scored, n int) []scored {
	if n >= len(s) {
		return s
	}
	lo, hi := 0, len(s)
	for rounds := 0; hi-lo > 16 && rounds < maxRounds; rounds++ {
		a, b, c := s[lo], s[(lo+hi)/2], s[hi-1]
		if b.before(a) {
			a, b = b, a
		}
		if c.before(b) {
			b = c
			if b.before(a) {
				b = a
			}
		}
		i, j := lo, hi-1
		for i <= j {
			for s[i].before(b) {
				i++
			}
			for b.before(s[j]) {
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
	slices.SortFunc(s[lo:hi], order)
	return s[:n]
}
