package codec

import (
	"math"
	"math/bits"
	"slices"
)

// DefaultK returns the number of centroids that ColBERT and its successors use for a collection of this
// number of tokens: 2^⌊log₂(16·√tokens)⌋, at least 1.
func DefaultK(tokens int64) int {
	if tokens < 1 {
		return 1
	}
	_, exp := math.Frexp(16 * math.Sqrt(float64(tokens))) // the number is in [2^(exp−1), 2^exp)
	return 1 << (exp - 1)
}

// SampleDocs returns the number of documents, of n, on whose tokens ColBERT and its successors train:
// min(1 + ⌊16·√(120·n)⌋, n).
func SampleDocs(n int) int {
	if n < 1 {
		return 0
	}
	return min(1+int(16*math.Sqrt(120*float64(n))), n)
}

// rng is the random number generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). It does not use the
// standard library, so that a seed gives the same codec with every version of that.
type rng uint64

// next returns 64 random bits.
func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// intn returns a random number in 0..n−1. The bias of the multiplication is n/2⁶⁴.
func (r *rng) intn(n int) int {
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
		j := r.intn(i + 1)
		p[i], p[j] = p[j], p[i]
	}
	return p
}

// maxHeldRun is the maximum number of neighbouring rows that are held out together. Tokens of one document are
// similar, so that single held-out tokens would be nearer to the centroids than those of other documents.
const maxHeldRun = 1024

// isHeldOut reports whether a row of n is held out. One in every runs of rows is; runs are shorter in a small
// sample, so that about 8 runs are held out.
func isHeldOut(row, n, every int) bool {
	runLength := max(min(maxHeldRun, n/(8*every)), 1)
	return row/runLength%every == every-1
}

// countHeldOut returns the number of rows of n that are held out.
func countHeldOut(n, every int) (held int) {
	for row := range n {
		if isHeldOut(row, n, every) {
			held++
		}
	}
	return held
}

// holdOut returns the rows, with those that are held out at the end.
func holdOut(rows []uint32, every int) []uint32 {
	n := len(rows)
	moved := make([]uint32, 0, n)
	for _, want := range []bool{false, true} {
		for _, r := range rows {
			if isHeldOut(int(r), n, every) == want {
				moved = append(moved, r)
			}
		}
	}
	return moved
}

// sorted returns a sorted copy of distinct rows below n, to read them in memory order.
func sorted(rows []uint32, n int) []uint32 {
	isPresent := make([]bool, n)
	for _, r := range rows {
		isPresent[r] = true
	}
	s := make([]uint32, 0, len(rows))
	for r, present := range isPresent {
		if present {
			s = append(s, uint32(r))
		}
	}
	return s
}

// rowSet is a set of rows, by the hash of their content.
type rowSet map[uint64][][]float32

// insert adds a row without copying it. It returns false for a zero row, and for one that equals another.
func (s rowSet) insert(row []float32) bool {
	h, zero := uint64(0xcbf29ce484222325), true // FNV-1a, by numbers instead of bytes
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
