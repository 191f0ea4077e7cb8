package cpu

import (
	"math"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// rowReader brings rows of a batch to float32, block by block.
type rowReader struct {
	tier       *tier.Tier
	batch      *maxsim.Batch
	normalize  bool
	head       *head     // makes token vectors of rows; nil means that rows are token vectors
	widened    []float32 // a block, where the rows in memory do not serve
	products   []float32 // of a block with the head, and their ranges, which are not used
	lows       []float32
	highs      []float32
	factors    []float32
	squares    [][8]float64
	outOfRange []int32 // rows of a block whose lengths float32 has no inverse of
	tokenRows  []int32 // the tokens of an item, counted from its first row, where some rows are none
}

// blockValues is how many values a block has, about: half of a usual L2 is for the
// columns.
const blockValues = 1 << 14

func (r *rowReader) reset(t *tier.Tier, b *maxsim.Batch, normalize bool, h *head) {
	r.tier, r.batch, r.normalize, r.head = t, b, normalize, h
}

// blockRows is how many rows a block has at most.
func (r *rowReader) blockRows() int {
	tile, values := r.tier.Vectors.Rows, blockValues
	if r.head != nil {
		values = headValues
	}
	return max(values/r.batch.Tokens.Dim/tile, 2) * tile
}

// startItem counts the tokens of item i, of which it notes the rows if not all are.
func (r *rowReader) startItem(i int) (lo, n int) {
	lo, hi := r.batch.Span(i)
	r.tokenRows = r.tokenRows[:0]
	if r.batch.Mask == nil {
		return lo, hi - lo
	}
	for t, real := range r.batch.Mask[lo:hi] {
		if real {
			r.tokenRows = append(r.tokenRows, int32(t))
		}
	}
	if n = len(r.tokenRows); n == hi-lo {
		r.tokenRows = r.tokenRows[:0]
	}
	return lo, n
}

// rowOfToken is the row, from the first of the item on, of token t.
func (r *rowReader) rowOfToken(t int32) int32 {
	if len(r.tokenRows) == 0 {
		return t
	}
	return r.tokenRows[t]
}

// readBlock returns the tokens from to to of the item that begins at row lo, as m rows
// of float32, a tile at least: the last is repeated. factors, where not nil, are the factors of
// products with them.
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
	if r.inverseNorms(x, dim, m) {
		if len(r.widened) == 0 || &x[0] != &r.widened[0] {
			x = r.widenBlock(lo, from, to, m)
		}
		r.normalizeListed(x, dim)
	}
	if t.Scales != nil {
		for i := range m {
			r.factors[i] *= float32(sign(t.Scale(lo + int(r.rowOfToken(int32(min(from+i, to-1)))))))
		}
	}
	return x, m, r.factors
}

// blockScales returns those of the m rows of a block; nil means that all are 1.
func (r *rowReader) blockScales(lo, from, to, m int) []float32 {
	t := &r.batch.Tokens
	if t.Scales == nil {
		return nil
	}
	r.factors = resize(r.factors, m)
	for i := range m {
		r.factors[i] = t.Scales[lo+int(r.rowOfToken(int32(min(from+i, to-1))))]
	}
	return r.factors
}

// floatValues returns m rows as float32, without their scales, in memory if they are that there.
func (r *rowReader) floatValues(lo, from, to, m int) []float32 {
	t := &r.batch.Tokens
	if t.Type == maxsim.F32 && len(r.tokenRows) == 0 && m == to-from {
		return t.F32[(lo+from)*t.Dim : (lo+to)*t.Dim]
	}
	return r.widenBlock(lo, from, to, m)
}

// widenBlock writes a block to the work space.
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

// inverseNorms fills factors, and lists the rows, if there are some, whose factor is
// beyond what float32 is good for. Each row is looked at by itself: what its neighbours
// are, which tiers and numbers of threads decide, must not change its bits.
func (r *rowReader) inverseNorms(x []float32, dim, m int) (beyond bool) {
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

// normalizeListed divides the rows that inverseNorms listed by their lengths, in place of a factor.
func (r *rowReader) normalizeListed(x []float32, dim int) {
	for _, i := range r.outOfRange {
		row := x[int(i)*dim : (int(i)+1)*dim]
		normalizeInto(row, row, 1)
		r.factors[i] = 1
	}
}

// sumSquares adds the sums of a row and the squares of what is beyond whole groups.
func sumSquares(sums *[8]float64, row []float32) float64 {
	s := *sums
	for j, v := range row[len(row)&^7:] {
		s[j] += float64(v) * float64(v)
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

func sign(scale float32) float64 {
	switch {
	case scale > 0:
		return 1
	case scale < 0:
		return -1
	}
	return 0
}

// norm is the length of a vector.
func norm(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return math.Sqrt(s)
}

// normalizeInto writes x, divided by its length, times s; zeros stay zeros.
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
	loop := t.Tokens.WidenBF16
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
	// There are such loops for little-endian processors alone.
	n := (hi - lo) * m.Dim
	loop(dst[:n], unsafe.Slice((*byte)(unsafe.Pointer(&m.U16[lo*m.Dim])), 2*n))
}
