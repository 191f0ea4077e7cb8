package cpu

import (
	"math"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// rowReader reads the token vectors of a batch as float32, block by block. startItem
// selects an item; readBlock then reads a range of its tokens.
type rowReader struct {
	tier       *tier.Tier
	batch      *maxsim.Batch
	normalize  bool
	head       *head     // computes token vectors from rows. nil means that rows are token vectors
	widened    []float32 // a block, unless the rows in memory can be used directly
	products   []float32 // of a block with the head
	lows       []float32 // ranges of these, which the loop writes and nothing reads
	highs      []float32
	factors    []float32 // of the rows of a block
	squares    [][8]float64
	outOfRange []int32 // rows of a block whose inverse length is outside the range of factors
	tokenRows  []int32 // rows of the item's tokens, from its first row on; empty if all rows are tokens
}

// blockValues is about the number of values of a block. Its 64 KiB leave half of a usual
// L2 cache to the columns.
const blockValues = 1 << 14

func (r *rowReader) reset(t *tier.Tier, b *maxsim.Batch, normalize bool, h *head) {
	r.tier, r.batch, r.normalize, r.head = t, b, normalize, h
}

// blockRows returns the largest number of rows of a block, a multiple of the tile of MaxDot.
func (r *rowReader) blockRows() int {
	tile, values := r.tier.Vectors.Rows, blockValues
	if r.head != nil {
		values = headValues
	}
	return max(values/r.batch.Tokens.Dim/tile, 2) * tile
}

// startItem selects item i. It returns its first row and its number of tokens, and lists
// their rows if some rows are masked.
func (r *rowReader) startItem(i int) (lo, n int) {
	lo, hi := r.batch.Span(i)
	r.tokenRows = r.tokenRows[:0]
	if r.batch.Mask == nil {
		return lo, hi - lo
	}
	for t, isToken := range r.batch.Mask[lo:hi] {
		if isToken {
			r.tokenRows = append(r.tokenRows, int32(t))
		}
	}
	if n = len(r.tokenRows); n == hi-lo {
		r.tokenRows = r.tokenRows[:0]
	}
	return lo, n
}

// rowOfToken returns the row of token t, counted from the first row of the item.
func (r *rowReader) rowOfToken(t int32) int32 {
	if len(r.tokenRows) == 0 {
		return t
	}
	return r.tokenRows[t]
}

// rowOfBlock returns the row of the batch that is row i of a block: of the tokens from to to of
// the item that begins at row lo. Rows beyond them repeat the last token.
func (r *rowReader) rowOfBlock(lo, from, to, i int) int {
	return lo + int(r.rowOfToken(int32(min(from+i, to-1))))
}

// readBlock returns the tokens from to to of the item that begins at row lo, as m rows
// of float32. There are at least as many rows as MaxDot takes; the last token is repeated
// for that. factors multiply the products of the rows. nil means that all are 1.
func (r *rowReader) readBlock(lo, from, to int) (x []float32, m int, factors []float32) {
	t, dim := &r.batch.Tokens, r.batch.Tokens.Dim
	m = max(to-from, r.tier.Vectors.Rows)
	if r.head != nil {
		x, factors = r.projectBlock(lo, from, to, m)
		return x, m, factors
	}
	x = r.floatValues(lo, from, to, m)
	if !r.normalize {
		return x, m, r.blockScales(lo, from, to, m)
	}
	// Normalized: the factor is the inverse length, and of the scale only the sign is left.
	// Rows that no factor can normalize are divided by their length, in a copy.
	if r.inverseNorms(x, dim, m) {
		if len(r.widened) == 0 || &x[0] != &r.widened[0] {
			x = r.widenBlock(lo, from, to, m)
		}
		r.normalizeListed(x, dim)
	}
	if t.Scales != nil {
		for i := range m {
			r.factors[i] *= float32(sign(t.Scale(r.rowOfBlock(lo, from, to, i))))
		}
	}
	return x, m, r.factors
}

// blockScales returns the scales of the m rows of a block. nil means that all are 1.
func (r *rowReader) blockScales(lo, from, to, m int) []float32 {
	t := &r.batch.Tokens
	if t.Scales == nil {
		return nil
	}
	r.factors = resize(r.factors, m)
	for i := range m {
		r.factors[i] = t.Scales[r.rowOfBlock(lo, from, to, i)]
	}
	return r.factors
}

// floatValues returns m rows as float32, without their scales: the memory of the batch
// itself if it has these rows as float32.
func (r *rowReader) floatValues(lo, from, to, m int) []float32 {
	t := &r.batch.Tokens
	if t.Type == maxsim.F32 && len(r.tokenRows) == 0 && m == to-from {
		return t.F32[(lo+from)*t.Dim : (lo+to)*t.Dim]
	}
	return r.widenBlock(lo, from, to, m)
}

// widenBlock converts a block of m rows to float32, and repeats the last token for rows
// beyond it.
func (r *rowReader) widenBlock(lo, from, to, m int) []float32 {
	dim := r.batch.Tokens.Dim
	r.widened = resize(r.widened, m*dim)
	if len(r.tokenRows) == 0 {
		widenRows(r.tier, &r.batch.Tokens, r.widened, lo+from, lo+to)
	} else {
		for i, t := range r.tokenRows[from:to] {
			widenRows(r.tier, &r.batch.Tokens, r.widened[i*dim:(i+1)*dim], lo+int(t), lo+int(t)+1)
		}
	}
	last := r.widened[(to-from-1)*dim : (to-from)*dim]
	for i := to - from; i < m; i++ {
		copy(r.widened[i*dim:(i+1)*dim], last)
	}
	return r.widened
}

// inverseNorms sets factors to the inverse lengths of m rows, 0 for rows of zeros. It lists
// the rows whose factor is so large or small that products would lose digits in float32, and
// reports whether there are some. The decision is made for each row alone: its neighbours
// depend on the tier and the number of threads, and must not change its bits.
func (r *rowReader) inverseNorms(x []float32, dim, m int) (listed bool) {
	const minInverse, maxInverse = 1e-30, 1e30
	r.squares, r.factors, r.outOfRange = resize(r.squares, m), resize(r.factors, m), r.outOfRange[:0]
	r.tier.Vectors.Squares(r.squares, x, dim)
	for i := range m {
		f := 0.0
		if s := sumSquares(&r.squares[i], x[i*dim:(i+1)*dim]); s > 0 {
			if f = 1 / math.Sqrt(s); !(f > minInverse && f < maxInverse) {
				r.outOfRange = append(r.outOfRange, int32(i))
			}
		}
		r.factors[i] = float32(f)
	}
	return len(r.outOfRange) > 0
}

// normalizeListed divides the rows that inverseNorms listed by their lengths, and sets their
// factors to 1.
func (r *rowReader) normalizeListed(x []float32, dim int) {
	for _, i := range r.outOfRange {
		row := x[int(i)*dim : (int(i)+1)*dim]
		normalizeInto(row, row, 1)
		r.factors[i] = 1
	}
}

// sumSquares returns the sum of the squares of a row: of the eight sums of tier.Vectors.Squares
// and of the values beyond whole groups of eight.
func sumSquares(sums *[8]float64, row []float32) float64 {
	s := *sums
	for j, v := range row[len(row)&^7:] {
		s[j] += float64(v) * float64(v)
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// sign returns −1, 0 or 1.
func sign(scale float32) float64 {
	switch {
	case scale > 0:
		return 1
	case scale < 0:
		return -1
	}
	return 0
}

// norm returns the length of a vector.
func norm(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return math.Sqrt(s)
}

// normalizeInto writes x · s / ‖x‖ to dst; zeros stay zeros.
func normalizeInto(dst, x []float32, s float64) {
	if n := norm(x); n > 0 {
		s /= n
	}
	for j, v := range x {
		dst[j] = float32(float64(v) * s)
	}
}

// widenRows writes the rows lo to hi of a matrix as float32, without their scales.
func widenRows(t *tier.Tier, m *maxsim.Matrix, dst []float32, lo, hi int) {
	loop := t.Tokens.WidenBF16 // nil means that plain Go converts
	switch m.Type {
	case maxsim.F16:
		loop = t.Tokens.WidenF16
	case maxsim.BF16:
	case maxsim.I8:
		if loop := t.Vectors.WidenI8; loop != nil && m.Zeros == nil {
			n := (hi - lo) * m.Dim
			loop(dst[:n], m.I8[lo*m.Dim:hi*m.Dim])
			return
		}
		loop = nil
	default:
		loop = nil
	}
	if loop == nil || lo == hi {
		m.Widen(dst, lo, hi)
		return
	}
	// Only tiers of little-endian processors have these loops, so U16 is little-endian bytes.
	n := (hi - lo) * m.Dim
	loop(dst[:n], unsafe.Slice((*byte)(unsafe.Pointer(&m.U16[lo*m.Dim])), 2*n))
}
