// Package maxsimtest makes batches of token vectors for tests, and has the tests
// that every backend of package maxsim must pass.
package maxsimtest

import (
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Rand returns a random number generator for a test.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 16)) }

// Normal returns n values of a normal distribution.
func Normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// Small returns n integers of −2 to 2, whose products and sums no type rounds.
func Small(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.IntN(5) - 2)
	}
	return x
}

// RoundedTo rounds rows of dim values to a type. With affine, I8 has zero points.
func RoundedTo(t maxsim.Type, x []float32, dim int, affine bool) maxsim.Matrix {
	switch t {
	case maxsim.F16:
		return maxsim.ToFloat16(x, dim)
	case maxsim.BF16:
		return maxsim.ToBFloat16(x, dim)
	case maxsim.I8:
		if affine {
			return maxsim.QuantizeInt8Affine(x, dim)
		}
		return maxsim.QuantizeInt8(x, dim)
	case maxsim.E4M3:
		return maxsim.QuantizeFP8(x, dim)
	}
	return maxsim.Float32(x, dim)
}

// Side configures a batch of queries or of documents.
type Side struct {
	Type    maxsim.Type
	Affine  bool // I8 has zero points
	Lengths []int
	Padded  bool    // false means packed
	Apart   int     // rows of the matrix between items, which belong to none
	Masked  float64 // share of the rows that are masked
	Unit    bool    // vectors of length 1, before they are rounded to the type
}

// Batch returns a batch of random values.
func (s Side) Batch(rng *rand.Rand, dim int) *maxsim.Batch { return s.fromValues(rng, dim, Normal) }

// SmallBatch returns a batch of small integers.
func (s Side) SmallBatch(rng *rand.Rand, dim int) *maxsim.Batch { return s.fromValues(rng, dim, Small) }

// fromValues returns a batch whose values the function generates.
func (s Side) fromValues(rng *rand.Rand, dim int, values func(*rand.Rand, int) []float32) *maxsim.Batch {
	// 1. The layout.
	longest, offsets := 0, []int{0}
	for _, n := range s.Lengths {
		longest = max(longest, n)
		offsets = append(offsets, offsets[len(offsets)-1]+n)
	}
	rows := offsets[len(s.Lengths)]
	layout := maxsim.Layout{Offsets: offsets}
	if s.Padded {
		longest++ // the last row of every item is padding
		rows = len(s.Lengths) * longest
		layout = maxsim.Layout{Count: len(s.Lengths), Stride: longest, Lengths: s.Lengths}
		if s.Apart > 0 { // the matrix ends with the last item
			layout.MaxItemRows, layout.Stride = longest, longest+s.Apart
			rows += max(len(s.Lengths)-1, 0) * s.Apart
		}
	} else if s.Apart > 0 {
		layout.MaxItemRows = longest + 3
		rows += s.Apart
	}
	if s.Masked > 0 {
		layout.Mask = make([]bool, rows)
		for i := range layout.Mask {
			layout.Mask[i] = rng.Float64() >= s.Masked
		}
	}
	// 2. The values.
	t := s.Type
	if t == 0 {
		t = maxsim.F32
	}
	x := values(rng, rows*dim)
	if s.Unit {
		for r := range rows {
			row := x[r*dim : (r+1)*dim]
			var sum float64
			for _, v := range row {
				sum += float64(v) * float64(v)
			}
			for j := range row {
				row[j] /= float32(math.Sqrt(sum))
			}
		}
	}
	return &maxsim.Batch{Tokens: RoundedTo(t, x, dim, s.Affine), Layout: layout}
}

// Stretch multiplies a share of the rows by numbers of 1e-33 to 1e-28 or of 1e28 to 1e36, so
// that the inverse or the square of many lengths is out of the range of float32. Rows of F16
// do not change.
func Stretch(rng *rand.Rand, b *maxsim.Batch, share float64) {
	for r := range b.Tokens.Rows() {
		if rng.Float64() < share {
			exponent := 28 + 8*rng.Float64()
			if rng.IntN(2) == 0 {
				exponent = -28 - 5*rng.Float64()
			}
			Scale(b, r, float32(math.Pow(10, exponent)))
		}
	}
}

// Scale multiplies a row by c: its scale if it has one, or else its values. Rows of F16, whose
// range is too small, do not change.
func Scale(b *maxsim.Batch, row int, c float32) {
	m := &b.Tokens
	lo, hi := row*m.Dim, (row+1)*m.Dim
	switch {
	case m.Scales != nil:
		m.Scales[row] *= c
	case m.Type == maxsim.F32:
		for i := range m.F32[lo:hi] {
			m.F32[lo+i] *= c
		}
	case m.Type == maxsim.BF16:
		for i, v := range m.U16[lo:hi] {
			m.U16[lo+i] = kernels.BF16FromF32(math.Float32frombits(uint32(v)<<16) * c)
		}
	}
}

// NewCall returns a call with memory for scores and argmaxima.
func NewCall(q, d *maxsim.Batch, p maxsim.Pairs, t maxsim.Terms) *maxsim.Call {
	n := d.Len() * q.Len()
	switch {
	case p.Kind == maxsim.AllPairs && (p.Count > 0 || p.First > 0):
		n = p.Count * q.Len()
	case p.Kind == maxsim.CandidatePairs:
		n = p.K * q.Len()
	case p.Kind == maxsim.ListedPairs:
		n = len(p.Docs)
	}
	return &maxsim.Call{
		Q:      q,
		D:      d,
		Pairs:  p,
		Terms:  t,
		Scores: make([]float32, n),
		Argmax: make([]int32, n*q.MaxRows()),
	}
}
