package maxsimtest

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// newChamferCall returns a call with memory for all of its results.
func newChamferCall(x, y *maxsim.Batch, p maxsim.Pairs, m maxsim.Metric, mean bool) *maxsim.ChamferCall {
	call := NewCall(x, y, p, maxsim.Terms{})
	return &maxsim.ChamferCall{
		X:         x,
		Y:         y,
		Pairs:     p,
		Metric:    m,
		Mean:      mean,
		Distances: call.Scores,
		NearestX:  call.Argmax,
		NearestY:  make([]int32, len(call.Scores)*y.MaxRows()),
	}
}

// newChamferGrad returns a call for the gradients of c.
func newChamferGrad(c *maxsim.ChamferCall, upstream []float32) *maxsim.ChamferGradCall {
	return &maxsim.ChamferGradCall{
		X:        c.X,
		Y:        c.Y,
		Pairs:    c.Pairs,
		Metric:   c.Metric,
		Mean:     c.Mean,
		NearestX: c.NearestX,
		NearestY: c.NearestY,
		Upstream: upstream,
		DX:       NewGradient(c.X.(*maxsim.Batch), maxsim.F32),
		DY:       NewGradient(c.Y.(*maxsim.Batch), maxsim.F32),
	}
}

// checkChamfer compares distances, nearest rows and gradients with the oracle, and returns the
// oracle's distances and the call of gradients.
func (s *suite) checkChamfer(
	t *testing.T, c *maxsim.ChamferCall, upstream []float32,
) (want []float64, g *maxsim.ChamferGradCall) {
	t.Helper()
	chamfers := s.b.(maxsim.ChamferScorer)
	require.NoError(t, chamfers.Chamfer(background(), c))
	want, _, _ = c.Oracle()
	requireDistances(t, want, c.Distances)
	s.checkNearest(t, c)
	g = newChamferGrad(c, upstream)
	require.NoError(t, chamfers.ChamferGradients(background(), g))
	dx, dy := g.Oracle()
	RequireGradient(t, "X", dx, &g.DX.Matrix, c.X.(*maxsim.Batch), false)
	RequireGradient(t, "Y", dy, &g.DY.Matrix, c.Y.(*maxsim.Batch), false)
	return want, g
}

func requireDistances(t *testing.T, want []float64, got []float32) {
	t.Helper()
	for j, w := range want {
		require.InEpsilon(t, 1+w, 1+got[j], 1e-4, "pair %d", j)
	}
}

// chamferTypes covers every type, lengths about those of tiles, and held operands.
func (s *suite) chamferTypes(t *testing.T) {
	chamfers := s.b.(maxsim.ChamferScorer)
	for i, kind := range s.o.typesOrAll() {
		rng := Rand(uint64(50 + i))
		dim, xs, ys := []int{2, 40, 33, 130, 64}[i%5], []int{63, 130, 1}, []int{64, 0, 65, 200}
		if s.isBrief() {
			dim, xs, ys = []int{2, 5, 3, 7, 4}[i%5], []int{9, 66, 1}, []int{20, 0, 7}
		}
		x := Side{Type: kind, Affine: true, Lengths: xs, Masked: float64(i%2) / 5}.Batch(rng, dim)
		y := Side{Type: kind, Lengths: ys, Padded: i == 2, Apart: i % 3}.Batch(rng, dim)
		for _, metric := range []maxsim.Metric{maxsim.SquaredL2, maxsim.L1} {
			c := newChamferCall(x, y, maxsim.All(), metric, i%2 == 0)
			want, g := s.checkChamfer(t, c, Normal(rng, len(c.Distances)))
			hx, err := s.b.Prepare(background(), x)
			require.NoError(t, err)
			hy, err := s.b.Prepare(background(), y)
			require.NoError(t, err)
			heldCall := *c
			heldCall.X, heldCall.Y, heldCall.Distances = hx, hy, make([]float32, len(want))
			require.NoError(t, chamfers.Chamfer(background(), &heldCall))
			requireDistances(t, want, heldCall.Distances)
			heldGrad := *g
			heldGrad.X, heldGrad.DX = hx, NewGradient(x, maxsim.F32)
			heldGrad.Y, heldGrad.DY = hy, NewGradient(y, maxsim.F32)
			require.NoError(t, chamfers.ChamferGradients(background(), &heldGrad))
			require.NoError(t, hx.Close())
			require.NoError(t, hy.Close())
			require.ErrorIs(t, chamfers.Chamfer(background(), &heldCall), maxsim.ErrForeign)
			require.ErrorIs(t, chamfers.ChamferGradients(background(), &heldGrad), maxsim.ErrForeign)
		}
	}
}

// chamferReads checks that the vectors of a call do not change, neither by it nor by later ones.
func (s *suite) chamferReads(t *testing.T) {
	rng := Rand(62)
	chamfers := s.b.(maxsim.ChamferScorer)
	for range 10 {
		x, y := Side{Lengths: []int{3, 2}}.Batch(rng, 4), Side{Lengths: []int{4, 1}}.Batch(rng, 4)
		want := slices.Clone(x.Tokens.F32)
		require.NoError(t, chamfers.Chamfer(background(), newChamferCall(x, y, maxsim.All(), maxsim.L1, false)))
		half := Side{Type: maxsim.BF16, Lengths: []int{2}}.Batch(rng, 4)
		require.NoError(t, chamfers.Chamfer(background(), newChamferCall(half, half, maxsim.All(), maxsim.L1, false)))
		require.Equal(t, want, x.Tokens.F32)
	}
}

// chamferDifferences compares gradients with central differences of the oracle's distances.
func (s *suite) chamferDifferences(t *testing.T) {
	rng := Rand(60)
	chamfers := s.b.(maxsim.ChamferScorer)
	for i, metric := range []maxsim.Metric{maxsim.SquaredL2, maxsim.L1} {
		x, y := Side{Lengths: []int{3, 2}}.Batch(rng, 4), Side{Lengths: []int{4, 1, 0, 5}}.Batch(rng, 4)
		c := newChamferCall(x, y, maxsim.All(), metric, i == 0)
		require.NoError(t, chamfers.Chamfer(background(), c))
		up := Normal(rng, len(c.Distances))
		g := newChamferGrad(c, up)
		require.NoError(t, chamfers.ChamferGradients(background(), g))
		loss := func() (sum float64, nearest []int32) {
			distances, nx, ny := c.Oracle()
			for j, v := range distances {
				sum += v * float64(up[j])
			}
			return sum, append(nx, ny...)
		}
		requireDifferences(t, loss, x.Tokens.F32, g.DX.F32)
		requireDifferences(t, loss, y.Tokens.F32, g.DY.F32)
	}
}

// chamferFaults checks that invalid calls are refused, and that canceled contexts end calls.
func (s *suite) chamferFaults(t *testing.T) {
	rng := Rand(61)
	chamfers := s.b.(maxsim.ChamferScorer)
	x, y := Side{Lengths: []int{3, 2}}.Batch(rng, 4), Side{Lengths: []int{4, 1}}.Batch(rng, 4)
	good := newChamferCall(x, y, maxsim.All(), maxsim.L1, false)
	require.NoError(t, chamfers.Chamfer(background(), good))
	canceled, cancel := context.WithCancel(background())
	cancel()
	require.ErrorIs(t, chamfers.Chamfer(canceled, good), context.Canceled)
	require.ErrorIs(t, chamfers.ChamferGradients(canceled, newChamferGrad(good, nil)), context.Canceled)
	for name, spoil := range map[string]func(c *maxsim.ChamferCall){
		"metric":    func(c *maxsim.ChamferCall) { c.Metric = 7 },
		"distances": func(c *maxsim.ChamferCall) { c.Distances = c.Distances[1:] },
		"nearest":   func(c *maxsim.ChamferCall) { c.NearestY = c.NearestY[1:] },
		"pairs":     func(c *maxsim.ChamferCall) { c.Pairs = maxsim.Range(1, 5) },
		"dimension": func(c *maxsim.ChamferCall) { c.Y = maxsim.Single(maxsim.Float32(make([]float32, 6), 3)) },
	} {
		bad := *good
		spoil(&bad)
		before := append([]float32(nil), good.Distances...)
		require.ErrorIs(t, chamfers.Chamfer(background(), &bad), kernels.ErrShape, name)
		require.Equal(t, before, good.Distances)
	}
	g := newChamferGrad(good, []float32{1})
	require.ErrorIs(t, chamfers.ChamferGradients(background(), g), kernels.ErrShape)
	g = newChamferGrad(good, nil)
	g.NearestX = append([]int32(nil), g.NearestX...)
	g.NearestX[0] = math.MaxInt32
	require.ErrorIs(t, chamfers.ChamferGradients(background(), g), kernels.ErrShape)
}
