package maxsim

import (
	"bytes"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
)

// valid is a call that is right, to be spoilt.
func valid() *Call {
	q := Padded(Float32(make([]float32, 2*3*4), 4), 3)
	d := Packed(Float32(make([]float32, 5*4), 4), []int{0, 2, 2, 5})
	return &Call{Q: q, D: d, Scores: make([]float32, 6), Argmax: make([]int32, 18), Terms: Terms{Weights: make([]float32, 6)}}
}

// TestBadCalls: arrays, offsets and indices that do not fit are errors that say what
// is wrong.
func TestBadCalls(t *testing.T) {
	w, err := valid().Check()
	require.NoError(t, err)
	require.Equal(t, 6, w.Pairs)
	require.Equal(t, 3, w.Stride)
	huge := math.MaxInt
	for want, spoil := range map[string]func(c *Call, q, d *Batch){
		"no query operand":                       func(c *Call, q, d *Batch) { c.Q = nil },
		"document operand: ":                     func(c *Call, q, d *Batch) { d.Tokens.Type = 0 },
		"elements of type 77":                    func(c *Call, q, d *Batch) { d.Tokens.Type = 77 },
		"dimension 0":                            func(c *Call, q, d *Batch) { q.Tokens.Dim = 0 },
		"dimension -4":                           func(c *Call, q, d *Batch) { q.Tokens.Dim = -4 },
		"dimension 4097":                         func(c *Call, q, d *Batch) { q.Tokens.Dim = 4097 },
		"are not a multiple of the dimension 4":  func(c *Call, q, d *Batch) { d.Tokens.F32 = d.Tokens.F32[1:] },
		"elements of other types":                func(c *Call, q, d *Batch) { d.Tokens.U16 = make([]uint16, 4) },
		"5 scales for 5 rows of type float32":    func(c *Call, q, d *Batch) { d.Tokens.Scales = make([]float32, 5) },
		"zero points for 5 rows of type float32": func(c *Call, q, d *Batch) { d.Tokens.Zeros = make([]int8, 5) },
		"4 scales for 5 rows":                    func(c *Call, q, d *Batch) { d.Tokens = Int8(make([]int8, 20), make([]float32, 4), nil, 4) },
		"queries have dimension 4, documents 2":  func(c *Call, q, d *Batch) { d.Tokens.Dim = 2 },
		"offset 1 is -1, after 0":                func(c *Call, q, d *Batch) { d.Offsets[1] = -1 },
		"offset 2 is 1, after 2":                 func(c *Call, q, d *Batch) { d.Offsets[2] = 1 },
		"offsets end at 6 of 5 rows":             func(c *Call, q, d *Batch) { d.Offsets[3] = 6 },
		"of 5 rows":                              func(c *Call, q, d *Batch) { d.Offsets[3] = huge },
		"no offsets":                             func(c *Call, q, d *Batch) { d.Offsets = []int{} },
		"both offsets and padding":               func(c *Call, q, d *Batch) { d.Stride = 1 },
		"3 items of 3 rows in a matrix of 6":     func(c *Call, q, d *Batch) { q.Count = 3 },
		"-2 items":                               func(c *Call, q, d *Batch) { q.Count, q.Stride = -2, -3 },
		"items of 4611686018427387904 rows":      func(c *Call, q, d *Batch) { q.Count, q.Stride = 8, 1<<62 },
		"2 items of -1 rows, 3 apart":            func(c *Call, q, d *Batch) { q.MaxItemRows = -1 },
		"2 items of 4 rows, 3 apart":             func(c *Call, q, d *Batch) { q.MaxItemRows = 4 },
		"3 items of 1 rows, 3 apart":             func(c *Call, q, d *Batch) { q.MaxItemRows, q.Count = 1, 3 },
		"1 items of 7 rows, 7 apart":             func(c *Call, q, d *Batch) { q.MaxItemRows, q.Count, q.Stride = 7, 1, 7 },
		"items of 1 rows, 4611686018427387904":   func(c *Call, q, d *Batch) { q.MaxItemRows, q.Stride = 1, 1<<62 },
		"item 2 has 3 rows, of at most 2":        func(c *Call, q, d *Batch) { d.MaxItemRows = 2 },
		"1 lengths for 2 items":                  func(c *Call, q, d *Batch) { q.Lengths = []int{1} },
		"length 4 of item 1 is not in 0..3":      func(c *Call, q, d *Batch) { q.Lengths = []int{3, 4} },
		"length 3 of item 1 is not in 0..2":      func(c *Call, q, d *Batch) { q.Lengths, q.MaxItemRows = []int{2, 3}, 2 },
		"length -1 of item 0":                    func(c *Call, q, d *Batch) { q.Lengths = []int{-1, 3} },
		"a mask of 4 entries for 5 rows":         func(c *Call, q, d *Batch) { d.Mask = make([]bool, 4) },
		"5 weights for 6 query rows":             func(c *Call, q, d *Batch) { c.Weights = c.Weights[1:] },
		"5 scores for 6 pairs":                   func(c *Call, q, d *Batch) { c.Scores = c.Scores[1:] },
		"17 argmaxima for 6 pairs of 3":          func(c *Call, q, d *Batch) { c.Argmax = c.Argmax[1:] },
		"documents 2 to 4 of 3":                  func(c *Call, q, d *Batch) { c.Pairs = Range(2, 2) },
		"documents -1":                           func(c *Call, q, d *Batch) { c.Pairs = Range(-1, 2) },
		"documents 1 to":                         func(c *Call, q, d *Batch) { c.Pairs = Range(1, huge) },
		"3 documents for 2 queries with 2":       func(c *Call, q, d *Batch) { c.Pairs = OwnDocuments(2) },
		"2 × -1 pairs":                           func(c *Call, q, d *Batch) { c.Pairs = OwnDocuments(-1) },
		"2 × 9223372036854775807 pairs":          func(c *Call, q, d *Batch) { c.Pairs = Candidates(huge, nil) },
		"3 candidates for 2 queries with 2 each": func(c *Call, q, d *Batch) { c.Pairs = Candidates(2, []int32{0, 1, 2}) },
		"document 3 of pair 1 is not in 0..2":    func(c *Call, q, d *Batch) { c.Pairs = Candidates(1, []int32{0, 3}) },
		"document -1 of pair 0":                  func(c *Call, q, d *Batch) { c.Pairs = Candidates(1, []int32{-1, 0}) },
		"query 2 of pair 0 is not in 0..1":       func(c *Call, q, d *Batch) { c.Pairs = Listed([]int32{2}, []int32{0}) },
		"pairs of 1 queries and 2 documents":     func(c *Call, q, d *Batch) { c.Pairs = Listed([]int32{1}, []int32{0, 1}) },
		"pairs of kind 9":                        func(c *Call, q, d *Batch) { c.Pairs.Kind = 9 },
		"candidates together with a list":        func(c *Call, q, d *Batch) { c.Pairs = Candidates(1, nil); c.Queries = []int32{1} },
	} {
		c := valid()
		spoil(c, c.Q.(*Batch), c.D.(*Batch))
		_, err := c.Check()
		require.ErrorIs(t, err, kernels.ErrShape, want)
		require.ErrorContains(t, err, want)
	}
}

func TestBadGradients(t *testing.T) {
	for want, spoil := range map[string]func(g *GradCall){
		"2 upstream values for 6 pairs":      func(g *GradCall) { g.Upstream = make([]float32, 2) },
		"0 argmaxima":                        func(g *GradCall) { g.Argmax = nil },
		"row 2 wins in pair 0":               func(g *GradCall) { g.Argmax[0] = 2 },
		"row 0 wins in pair 1":               func(g *GradCall) { g.Argmax[3] = 0 },
		"row -2 wins in pair 2":              func(g *GradCall) { g.Argmax[6] = -2 },
		"query gradient of 5 rows of 4":      func(g *GradCall) { g.DQ.Matrix = Float32(make([]float32, 20), 4) },
		"document gradient: ":                func(g *GradCall) { g.DD.Dim = 0 },
		"of type int8; want 5 of 4":          func(g *GradCall) { g.DD.Matrix = Int8(make([]int8, 20), nil, nil, 4) },
		"queries have dimension 4, document": func(g *GradCall) { g.D = Single(Float32(nil, 3)) },
	} {
		c := valid()
		g := &GradCall{Q: c.Q, D: c.D, Argmax: c.Argmax,
			DQ: &Gradient{Matrix: Float32(make([]float32, 24), 4)}, DD: &Gradient{Matrix: Float32(make([]float32, 20), 4)}}
		for i := range g.Argmax {
			g.Argmax[i] = -1
		}
		_, err := g.Check()
		require.NoError(t, err)
		spoil(g)
		_, err = g.Check()
		require.ErrorIs(t, err, kernels.ErrShape, want)
		require.ErrorContains(t, err, want)
	}
}

func TestBadChamfer(t *testing.T) {
	x, y := Padded(Float32(make([]float32, 24), 4), 3), Packed(Float32(make([]float32, 20), 4), []int{0, 2, 5})
	for want, spoil := range map[string]func(g *ChamferGradCall){
		"metric 2":                            func(g *ChamferGradCall) { g.Metric = 2 },
		"5 argmaxima":                         func(g *ChamferGradCall) { g.NearestY = make([]int32, 5) },
		"row 3 wins in pair 2":                func(g *ChamferGradCall) { g.NearestY[2*3] = 3 },
		"row 2 wins in pair 0":                func(g *ChamferGradCall) { g.NearestX[1] = 2 },
		"row 1 wins in pair 0 for row 2 of 2": func(g *ChamferGradCall) { g.NearestY[2] = 1 },
		"X gradient of 4 rows":                func(g *ChamferGradCall) { g.DX = &Gradient{Matrix: Float32(make([]float32, 16), 4)} },
		"Y gradient of 4 rows":                func(g *ChamferGradCall) { g.DY = &Gradient{Matrix: Float32(make([]float32, 16), 4)} },
		"3 upstream values":                   func(g *ChamferGradCall) { g.Upstream = make([]float32, 3) },
	} {
		g := &ChamferGradCall{X: x, Y: y, NearestX: make([]int32, 12), NearestY: make([]int32, 12)}
		for i := range g.NearestY {
			g.NearestY[i] = -1
		}
		_, err := g.Check()
		require.NoError(t, err)
		spoil(g)
		_, err = g.Check()
		require.ErrorIs(t, err, kernels.ErrShape, want)
		require.ErrorContains(t, err, want)
	}
	_, err := (&ChamferCall{X: x, Y: y, Distances: make([]float32, 3)}).Check()
	require.ErrorContains(t, err, "3 distances for 4 pairs")
}

// TestWarning: one warning in a process, where lengths are odd, not normalised, and
// somebody listens.
func TestWarning(t *testing.T) {
	Unwarn()
	var b bytes.Buffer
	c := valid()
	q := c.Q.(*Batch)
	for i := range q.Tokens.F32 {
		q.Tokens.F32[i] = 2
	}
	check := func() {
		_, err := c.Check()
		require.NoError(t, err)
	}
	check()
	c.Logger, c.Normalize = slog.New(slog.NewTextHandler(&b, nil)), true
	check()
	c.Normalize, q.Tokens.F32 = false, make([]float32, 24)
	check()
	for i := range 6 {
		q.Tokens.F32[i*4] = -1
	}
	check()
	require.Empty(t, b.String())
	q.Tokens.F32[1], q.Tokens.F32[5], q.Tokens.F32[9], q.Tokens.F32[13] = 2, 2, 2, 2
	check()
	check()
	require.Equal(t, 1, strings.Count(b.String(), "\n"), b.String())
	require.Contains(t, b.String(), "odd=4")
	Unwarn()
}

func TestSelect(t *testing.T) {
	_, err := Select("no such backend")
	require.ErrorIs(t, err, kernels.ErrUnavailable)
}

// FuzzCheck: no call of any shape makes the check panic, and one that passes can be
// computed.
func FuzzCheck(f *testing.F) {
	f.Add(4, 3, 2, 2, 5, 1, 0, 0, 0, []byte{0, 2, 2, 5})
	f.Add(1, 1, 0, -1, 3, 0, 1, 2, 1, []byte{3, 0, 1})
	f.Add(4096, 1<<62, 4, 1, 1, 1, 2, -1, 2, []byte{0, 1})
	f.Fuzz(func(t *testing.T, dim, stride, count, rowsQ, rowsD, first, docs, k, kind int, list []byte) {
		const most = 64
		if max(rowsQ, rowsD) > most || min(rowsQ, rowsD) < 0 || dim > 16 || len(list) > most {
			return
		}
		d := max(dim, 0)
		q := &Batch{Float32(make([]float32, rowsQ*d), dim), Layout{Count: count, Stride: stride}}
		offsets, indices := make([]int, len(list)), make([]int32, len(list))
		for i, v := range list {
			offsets[i], indices[i] = int(int8(v)), int32(int8(v))
		}
		c := Call{Q: q, D: Packed(Float32(make([]float32, rowsD*d), dim), offsets)}
		c.Pairs = Pairs{Kind: Kind(kind), First: first, Count: docs, K: k}
		if kind%3 > 0 {
			c.Docs = indices
		}
		if kind%3 == 2 {
			c.Queries = indices
		}
		w, err := checkOperands(c.Q, c.D, &c.Pairs, &c.Terms)
		if err != nil {
			require.ErrorIs(t, err, kernels.ErrShape)
			return
		}
		if w.Pairs > 1000 || count > 1000 {
			return // empty items
		}
		scores, argmax := c.Oracle()
		require.Len(t, scores, w.Pairs)
		g := GradCall{Q: c.Q, D: c.D, Pairs: c.Pairs, Argmax: argmax}
		_, err = g.Check()
		require.NoError(t, err)
		h := HeadCall{Q: c.Q, D: c.D, Pairs: c.Pairs, Head: Head{Weights: Float32(make([]float32, max(k, 0)%100*d), d)}, Scores: make([]float32, w.Pairs)}
		if _, err = h.Check(); err != nil {
			require.ErrorIs(t, err, kernels.ErrShape)
		} else {
			require.Len(t, h.Oracle(), w.Pairs)
		}
		r := RankCall{Q: c.Q, D: c.D, K: k, Docs: make([]int32, max(k, 0)%100*w.Q.Len()), Scores: make([]float32, max(k, 0)%100*w.Q.Len())}
		if _, err = r.Check(); err != nil {
			require.ErrorIs(t, err, kernels.ErrShape)
		}
	})
}

// Chunks that lie are errors.
func FuzzCheckCompressed(f *testing.F) {
	f.Add(4, 2, uint8(2), uint8(1), []byte{0, 1, 1, 3}, 6, 12, 3)
	f.Add(4096, 1, uint8(8), uint8(3), []byte{0, 200}, 800, 4096, 400)
	f.Add(4, 2, uint8(2), uint8(14), []byte{0, 1, 1, 3}, 6, 12, 3)
	f.Fuzz(func(t *testing.T, dim, k int, nbits, kind uint8, list []byte, codes, residuals, factors int) {
		const most = 1 << 12
		if max(codes, residuals, factors, len(list)) > most || min(codes, residuals, factors) < 0 {
			return
		}
		offsets := make([]uint32, len(list))
		for i, v := range list {
			offsets[i] = uint32(v)
		}
		c := &kernels.Codec{
			Centroids: kernels.Centroids{K: k, Dim: dim, Type: kernels.FloatType(kind), Data: make([]byte, most)},
			Codebook:  kernels.Codebook{Nbits: int(nbits), Step: 1}, FactorMax: 1,
		}
		ch := &kernels.Chunk{Offsets: offsets, CodeBytes: 2, Codes: make([]byte, codes), Residuals: make([]byte, residuals), Factors: make([]byte, factors)}
		m := chunkMatrix(c, ch)
		if err := m.Validate(); err != nil {
			require.ErrorIs(t, err, kernels.ErrShape)
			return
		}
		n := m.Rows()
		m.Widen(make([]float32, n*dim), 0, n)
		part := m.Slice(n/2, n)
		require.NoError(t, part.Validate())
	})
}

// TestE4M3: every code survives, values between two codes go to the nearest, ties to
// the even one, and what is too large is the largest.
func TestE4M3(t *testing.T) {
	require.Equal(t, float32(maxE4M3), E4M3ToF32(0x7e))
	require.Equal(t, float32(1), E4M3ToF32(0x38))
	require.Equal(t, float32(1.0/512), E4M3ToF32(1))
	for code := range 256 {
		v := E4M3ToF32(uint8(code))
		if code&0x7f == 0x7f {
			require.True(t, math.IsNaN(float64(v)))
			require.Equal(t, uint8(0x7f), e4m3FromF32(v)&0x7f)
			continue
		}
		require.Equal(t, uint8(code), e4m3FromF32(v), "%#x is %g", code, v)
		if code&0x7f >= 0x7e {
			continue
		}
		next := E4M3ToF32(uint8(code + 1))
		half := (v + next) / 2
		require.Equal(t, uint8(code+code&1), e4m3FromF32(half), "%g is between %g and %g", half, v, next)
		require.Equal(t, uint8(code), e4m3FromF32(half-(next-v)/64))
		require.Equal(t, uint8(code+1), e4m3FromF32(half+(next-v)/64))
	}
	require.Equal(t, uint8(0x7e), e4m3FromF32(1e9))
	require.Equal(t, uint8(0xfe), e4m3FromF32(float32(math.Inf(-1))))
}

// TestQuantize: what comes back is within half a step, and zero stays zero.
func TestQuantize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const dim = 33
	x := make([]float32, 20*dim)
	for i := range x {
		x[i] = float32(rng.NormFloat64()*math.Pow(10, float64(i/dim%9-4))) + float32(i/dim%3)
	}
	clear(x[dim : 2*dim])
	for j := range dim {
		x[2*dim+j] = float32(math.Abs(float64(x[2*dim+j]))) + 5 // zero point at the end
	}
	x[3*dim] = 1e-42
	clear(x[3*dim+1 : 4*dim])
	back := make([]float32, dim)
	for _, m := range []Matrix{QuantizeInt8(x, dim), QuantizeInt8Affine(x, dim), QuantizeFP8(x, dim)} {
		require.NoError(t, m.Validate())
		for r := range m.Rows() {
			m.Widen(back, r, r+1)
			var most float64
			for _, v := range x[r*dim : (r+1)*dim] {
				most = max(most, math.Abs(float64(v)))
			}
			for j, v := range back {
				want := float64(x[r*dim+j])
				allowed := 1.01*most/127 + 2e-45
				if m.Type == I8 && m.Zeros == nil {
					allowed = 0.501*most/127 + 2e-45
				} else if m.Type == E4M3 {
					allowed = math.Abs(want)/16 + most/448/512 + 2e-45
				}
				require.InDelta(t, want, float64(v)*float64(m.Scale(r)), allowed, "%s, row %d", m.Type, r)
			}
		}
		require.Equal(t, float32(0), m.Scale(1))
	}
}
