package codec

import (
	"math"
	"math/bits"
	"slices"
)

// DefaultK is the number of centroids that ColBERT's family uses for a
// collection of that many tokens: 2^⌊log₂(16·√tokens)⌋, at least 1.
func DefaultK(tokens int64) int {
	if tokens < 1 {
		return 1
	}
	_, exp := math.Frexp(16 * math.Sqrt(float64(tokens))) // of at least 2^(exp−1)
	return 1 << (exp - 1)
}

// SampleDocs is the number of documents, of n, whose tokens ColBERT's family
// trains on: min(1 + ⌊16·√(120·n)⌋, n).
func SampleDocs(n int) int {
	if n < 1 {
		return 0
	}
	return min(1+int(16*math.Sqrt(120*float64(n))), n)
}

// rng is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). It is written out so
// that a seed means the same codec whatever the standard library does.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws from 0..n−1. The bias of the multiplication is n/2⁶⁴.
func (r *rng) below(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

// shuffled returns 0..n−1 in random order.
func shuffled(n int, seed uint64) []uint32 {
	r := rng(seed)
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(i)
	}
	for i := n - 1; i > 0; i-- {
		j := r.below(i + 1)
		p[i], p[j] = p[j], p[i]
	}
	return p
}

// heldRun is how many neighbours of a sample are held out together: tokens of one document are alike, so that
// single ones would be nearer to the centroids than other documents are.
const heldRun = 1024

// isHeld reports whether a row of n is held out, as a share of the rows is.
func isHeld(row, n, every int) bool {
	return row/max(min(heldRun, n/(8*every)), 1)%every == every-1
}

func countHeld(n, every int) (held int) {
	for row := range n {
		if isHeld(row, n, every) {
			held++
		}
	}
	return held
}

// holdOut moves the rows that are held out, to the end.
func holdOut(rows []uint32, every int) []uint32 {
	n := len(rows)
	moved := make([]uint32, 0, n)
	for _, want := range []bool{false, true} {
		for _, r := range rows {
			if isHeld(int(r), n, every) == want {
				moved = append(moved, r)
			}
		}
	}
	return moved
}

// sorted returns an ascending copy, for reading rows in memory order, of distinct rows
// below n.
func sorted(rows []uint32, n int) []uint32 {
	there := make([]bool, n)
	for _, r := range rows {
		there[r] = true
	}
	s := make([]uint32, 0, len(rows))
	for r, ok := range there {
		if ok {
			s = append(s, uint32(r))
		}
	}
	return s
}

// rowSet remembers rows by content.
type rowSet map[uint64][][]float32

// insert reports whether a row is neither zero nor equal to one inserted before. It is kept.
func (s rowSet) insert(row []float32) bool {
	h, zero := uint64(0xcbf29ce484222325), true
	for _, v := range row {
		zero = zero && v == 0
		h = (h ^ uint64(math.Float32bits(v))) * 0x100000001b3
	}
	if zero {
		return false
	}
	for _, o := range s[h] {
		if slices.Equal(row, o) {
			return false
		}
	}
	s[h] = append(s[h], row)
	return true
}
