package maxsimtest

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// NewGradient returns memory for a gradient of b.
func NewGradient(b *maxsim.Batch, t maxsim.Type) *maxsim.Gradient {
	n := b.Tokens.Rows() * b.Tokens.Dim
	g := &maxsim.Gradient{Matrix: maxsim.Matrix{Type: t, Dim: b.Tokens.Dim}}
	if t == maxsim.F32 {
		g.F32 = make([]float32, n)
	} else {
		g.U16 = make([]uint16, n)
	}
	return g
}

// matrixValues returns the values of a matrix without their scales.
func matrixValues(m *maxsim.Matrix) []float32 {
	x := make([]float32, m.Rows()*m.Dim)
	m.Widen(x, 0, m.Rows())
	return x
}

// gradients compares gradients with the oracle for the same argmaxima, over layouts, types and
// pairs.
func (s *suite) gradients(t *testing.T) {
	rng := Rand(20)
	i := 0
	for _, kind := range s.o.typesOrAll() {
		for _, q := range []Side{
			{Lengths: []int{33, 0, 5}},
			{Lengths: []int{12, 0, 5}, Padded: true, Masked: 0.2, Apart: 4},
		} {
			for _, d := range []Side{
				{Lengths: []int{0, 40, 1, 13, 2, 5}},
				{Lengths: []int{0, 20, 1, 13, 2, 5}, Padded: true, Masked: 0.3, Apart: 3},
			} {
				for _, normalize := range []bool{false, true} {
					q.Type, d.Type = kind, kind
					dim := []int{3, 32, 130}[i%3]
					i++
					qb, db := q.Batch(rng, dim), d.Batch(rng, dim)
					for name, p := range pairsOf(rng, qb.Len(), db.Len()) {
						if s.isBrief() && (i+len(name))%3 > 0 {
							continue
						}
						weights := Normal(rng, qb.Tokens.Rows())
						terms := maxsim.Terms{Normalize: normalize, Weights: weights, Threads: 1 + i%3}
						s.checkGradients(t, qb, db, p, terms)
					}
				}
			}
		}
	}
}

// checkGradients scores pairs and compares both gradients with the oracle.
func (s *suite) checkGradients(t *testing.T, q, d *maxsim.Batch, p maxsim.Pairs, terms maxsim.Terms) {
	t.Helper()
	c := NewCall(q, d, p, terms)
	require.NoError(t, s.b.Score(background(), c))
	g := &maxsim.GradCall{
		Q:        q,
		D:        d,
		Pairs:    p,
		Terms:    terms,
		Argmax:   c.Argmax,
		Upstream: Normal(Rand(21), len(c.Scores)),
		DQ:       NewGradient(q, maxsim.F32),
		DD:       NewGradient(d, maxsim.F32),
	}
	require.NoError(t, s.b.Gradients(background(), g))
	dq, dd := g.Oracle()
	RequireGradient(t, "Q", dq, &g.DQ.Matrix, q, terms.Normalize)
	RequireGradient(t, "D", dd, &g.DD.Matrix, d, terms.Normalize)
}

// RequireGradient compares a gradient of b with that of the oracle, within the error of float32
// sums and the rounding of the gradient's type.
func RequireGradient(t *testing.T, name string, want []float64, got *maxsim.Matrix, b *maxsim.Batch, normalize bool) {
	t.Helper()
	lengths := make([]float64, got.Rows())
	for r := range lengths {
		lengths[r] = length(b, r)
	}
	var largest float64
	for i, v := range want {
		scale := 1.0
		if normalize {
			scale = lengths[i/got.Dim]
		}
		largest = max(largest, math.Abs(v)*scale)
	}
	rounding := map[maxsim.Type]float64{maxsim.F32: 0, maxsim.F16: 1.0 / 2048, maxsim.BF16: 1.0 / 256}[got.Type]
	for i, v := range matrixValues(got) {
		allowed := 1e-5*(largest+1) + rounding*math.Abs(want[i]) + rounding/1024
		if normalize {
			if l := lengths[i/got.Dim]; l > 0 {
				allowed /= min(l, 1)
			}
		}
		if diff := math.Abs(float64(v) - want[i]); !(diff <= allowed) {
			t.Fatalf("gradient of %s, row %d, dimension %d: %g, oracle %g, allowed %g",
				name, i/got.Dim, i%got.Dim, v, want[i], allowed)
		}
	}
}

// length returns the length of a row of a batch.
func length(b *maxsim.Batch, row int) float64 {
	var sum float64
	for _, v := range maxsim.OracleRow(b, row, false) {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// gradientBuffers checks that gradients overwrite or add, in any type; that either may be nil;
// and that bits do not depend on the number of threads.
func (s *suite) gradientBuffers(t *testing.T) {
	rng := Rand(22)
	q, d := Side{Lengths: []int{20, 3}}.Batch(rng, 16), Side{Lengths: []int{9, 0, 30}, Masked: 0.3}.Batch(rng, 16)
	c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
	require.NoError(t, s.b.Score(background(), c))
	for _, kind := range []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.BF16} {
		for _, add := range []bool{false, true} {
			g := &maxsim.GradCall{Q: q, D: d, Argmax: c.Argmax, DQ: NewGradient(q, kind), DD: NewGradient(d, kind)}
			before := RoundedTo(kind, Normal(rng, len(d.Tokens.F32)), 16, false)
			g.DQ.Matrix = RoundedTo(kind, Normal(rng, len(q.Tokens.F32)), 16, false)
			g.DD.Matrix = before.Slice(0, before.Rows())
			if kind == maxsim.F32 {
				g.DD.F32 = append([]float32{}, before.F32...)
			} else {
				g.DD.U16 = append([]uint16{}, before.U16...)
			}
			g.DQ.Add, g.DD.Add = add, add
			dq, dd := g.Oracle()
			if add {
				for i, v := range matrixValues(&g.DQ.Matrix) {
					dq[i] += float64(v)
				}
				for i, v := range matrixValues(&before) {
					dd[i] += float64(v)
				}
			}
			require.NoError(t, s.b.Gradients(background(), g))
			RequireGradient(t, "Q", dq, &g.DQ.Matrix, q, false)
			RequireGradient(t, "D", dd, &g.DD.Matrix, d, false)
		}
	}
	var want [2]*maxsim.Gradient
	for threads := 1; threads <= 4; threads++ {
		g := &maxsim.GradCall{
			Q:      q,
			D:      d,
			Argmax: c.Argmax,
			Terms:  maxsim.Terms{Threads: threads},
			DQ:     NewGradient(q, maxsim.F32),
			DD:     NewGradient(d, maxsim.F32),
		}
		require.NoError(t, s.b.Gradients(background(), g))
		if threads == 1 {
			want = [2]*maxsim.Gradient{g.DQ, g.DD}
		}
		require.Equal(t, want[0].F32, g.DQ.F32)
		require.Equal(t, want[1].F32, g.DD.F32)
	}
	g := &maxsim.GradCall{Q: q, D: d, Argmax: c.Argmax, DD: NewGradient(d, maxsim.F32)}
	require.NoError(t, s.b.Gradients(background(), g))
	require.Equal(t, want[1].F32, g.DD.F32)
	g.DD = nil
	require.NoError(t, s.b.Gradients(background(), g))
	g.D = foreign{d}
	require.ErrorIs(t, s.b.Gradients(background(), g), maxsim.ErrForeign)
	g.D, g.Upstream = d, make([]float32, 1)
	require.ErrorIs(t, s.b.Gradients(background(), g), kernels.ErrShape)
}

// differences compares gradients of a backend with central differences of the oracle's
// scores.
func (s *suite) differences(t *testing.T) {
	rng := Rand(23)
	for _, normalize := range []bool{false, true} {
		q, d := Side{Lengths: []int{3, 2}}.Batch(rng, 6), Side{Lengths: []int{4, 1, 0, 6}}.Batch(rng, 6)
		c := NewCall(q, d, maxsim.All(), maxsim.Terms{Normalize: normalize})
		require.NoError(t, s.b.Score(background(), c))
		up := Normal(rng, len(c.Scores))
		g := &maxsim.GradCall{
			Q:        q,
			D:        d,
			Terms:    c.Terms,
			Argmax:   c.Argmax,
			Upstream: up,
			DQ:       NewGradient(q, maxsim.F32),
			DD:       NewGradient(d, maxsim.F32),
		}
		require.NoError(t, s.b.Gradients(background(), g))
		loss := func() (sum float64, argmax []int32) {
			scores, argmax := c.Oracle()
			for i, v := range scores {
				sum += v * float64(up[i])
			}
			return sum, argmax
		}
		requireDifferences(t, loss, q.Tokens.F32, g.DQ.F32)
		requireDifferences(t, loss, d.Tokens.F32, g.DD.F32)
	}
}

// requireDifferences compares a gradient with central differences of the loss. It skips values
// for which another token wins within the difference; these must be few.
func requireDifferences(t *testing.T, loss func() (float64, []int32), x, gradient []float32) {
	t.Helper()
	skipped := 0
	for i, v := range x {
		const step = 1.0 / 2048
		x[i] = v + step
		hi, argHi := loss()
		above := float64(x[i])
		x[i] = v - step
		lo, argLo := loss()
		below := float64(x[i])
		x[i] = v
		if !slices.Equal(argHi, argLo) {
			skipped++
			continue
		}
		require.InDelta(t, (hi-lo)/(above-below), gradient[i], 1e-4, "value %d", i)
	}
	require.Less(t, skipped, len(x)/4)
}

// chamfer compares distances, nearest rows and gradients with the oracle.
func (s *suite) chamfer(t *testing.T) {
	rng := Rand(24)
	chamfers := s.b.(maxsim.ChamferScorer)
	for i, metric := range []maxsim.Metric{maxsim.SquaredL2, maxsim.L1, maxsim.SquaredL2, maxsim.L1} {
		for _, dim := range []int{1, 3, 40} {
			x := Side{Lengths: []int{9, 0, 33}, Masked: 0.2 * float64(i/2), Padded: i == 3}.Batch(rng, dim)
			y := Side{Lengths: []int{50, 4, 0, 1, 17, 20}, Masked: 0.2 * float64(i/2)}.Batch(rng, dim)
			for name, p := range pairsOf(rng, x.Len(), y.Len()) {
				if s.isBrief() && (len(name)+dim)%3 > 0 {
					continue
				}
				c := newChamferCall(x, y, p, metric, i%2 == 0)
				c.Threads = 1 + i%3
				s.checkChamfer(t, c, Normal(rng, len(c.Distances)))
				c.NearestX, c.NearestY = nil, nil
				require.NoError(t, chamfers.Chamfer(background(), c))
			}
		}
	}
}

// checkNearest compares nearest rows by their distance.
func (s *suite) checkNearest(t *testing.T, c *maxsim.ChamferCall) {
	t.Helper()
	_, nx, ny := c.Oracle()
	xb, yb := c.X.(*maxsim.Batch), c.Y.(*maxsim.Batch)
	// compare compares the nearest rows in to of the rows of from. swapped says that to is X.
	compare := func(got, want []int32, from, to *maxsim.Batch, swapped bool) {
		stride := from.MaxRows()
		for i, w := range want {
			if w < 0 || got[i] < 0 {
				require.Equal(t, w, got[i])
				continue
			}
			xi, yi := c.PairAt(i/stride, yb.Len())
			if swapped {
				xi, yi = yi, xi
			}
			lo, _ := from.Span(xi)
			toLo, _ := to.Span(yi)
			row := maxsim.OracleRow(from, lo+i%stride, false)
			best := maxsim.Distance(c.Metric, row, maxsim.OracleRow(to, toLo+int(w), false))
			other := maxsim.Distance(c.Metric, row, maxsim.OracleRow(to, toLo+int(got[i]), false))
			require.True(t, to.IsToken(toLo+int(got[i])))
			require.LessOrEqual(t, other, best+1e-4*(1+best))
		}
	}
	compare(c.NearestX, nx, xb, yb, false)
	compare(c.NearestY, ny, yb, xb, true)
}
