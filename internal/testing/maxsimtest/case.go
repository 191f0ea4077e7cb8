// Package maxsimtest makes batches of token vectors for tests, and holds the tests
// that every backend of package maxsim must pass.
package maxsimtest

import (
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Rand is a generator for a test.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 16)) }

// Normal returns n values of a normal distribution.
func Normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// Small returns n integers of −2 to 2, whose products and sums are exact in any type.
func Small(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.IntN(5) - 2)
	}
	return x
}

// As rounds rows of dim values to a type. affine gives I8 zero points.
func As(t maxsim.Type, x []float32, dim int, affine bool) maxsim.Matrix {
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

// Side says what the batches of one side are like.
type Side struct {
	Type    maxsim.Type
	Affine  bool
	Lengths []int
	Padded  bool    // else packed
	Apart   int     // rows after an item that the matrix has and the layout has not
	Masked  float64 // share of the rows
	Unit    bool    // vectors of length 1, as far as the type goes
}

// Batch makes a batch of random values.
func (s Side) Batch(rng *rand.Rand, dim int) *maxsim.Batch { return s.fromValues(rng, dim, Normal) }

// SmallBatch makes a batch of small integers.
func (s Side) SmallBatch(rng *rand.Rand, dim int) *maxsim.Batch { return s.fromValues(rng, dim, Small) }

func (s Side) fromValues(rng *rand.Rand, dim int, values func(*rand.Rand, int) []float32) *maxsim.Batch {
	longest, offsets := 0, []int{0}
	for _, n := range s.Lengths {
		longest = max(longest, n)
		offsets = append(offsets, offsets[len(offsets)-1]+n)
	}
	rows := offsets[len(s.Lengths)]
	layout := maxsim.Layout{Offsets: offsets}
	if s.Padded {
		longest++ // nobody has the last row
		rows = len(s.Lengths) * longest
		layout = maxsim.Layout{Count: len(s.Lengths), Stride: longest, Lengths: s.Lengths}
		if s.Apart > 0 { // none of them after the last item
			layout.Longest, layout.Stride = longest, longest+s.Apart
			rows += max(len(s.Lengths)-1, 0) * s.Apart
		}
	} else if s.Apart > 0 {
		layout.Longest = longest + 3
		rows += s.Apart
	}
	if s.Masked > 0 {
		layout.Mask = make([]bool, rows)
		for i := range layout.Mask {
			layout.Mask[i] = rng.Float64() >= s.Masked
		}
	}
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
	return &maxsim.Batch{Tokens: As(t, x, dim, s.Affine), Layout: layout}
}

// Stretch multiplies a share of the rows by numbers of 1e-33 to 1e-28 or of 1e28 to 1e36, so
// that many of them have lengths whose inverse, or whose square, float32 does not hold. Rows of
// F16 stay as they are.
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

// Scale multiplies a row by c: its values, or its scale where it has one. F16 has no room for
// values so large or small, and stays as it is.
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

// NewCall makes a call with room for its results, scores and argmaxima both.
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
	return &maxsim.Call{Q: q, D: d, Pairs: p, Terms: t, Scores: make([]float32, n), Argmax: make([]int32, n*q.MaxRows())}
}
