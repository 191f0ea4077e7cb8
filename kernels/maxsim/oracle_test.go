package maxsim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOracleByHand: three documents, one of them empty, and ties.
func TestOracleByHand(t *testing.T) {
	q := Packed(Float32([]float32{1, 0, 0, 1}, 2), []int{0, 2})
	d := Packed(Float32([]float32{-1, -2, 2, 2, 2, 1, -3, -1}, 2), []int{0, 3, 3, 4})
	c := Call{Q: q, D: d, Scores: make([]float32, 3)}
	_, err := c.Check()
	require.NoError(t, err)
	scores, argmax := c.Oracle()
	require.Equal(t, []float64{4, 0, -4}, scores)
	require.Equal(t, []int32{1, 1, -1, -1, 0, 0}, argmax, "the first of a tie; none where nothing is; negative maxima")

	d.Mask = []bool{true, false, true, false}
	c.Weights = []float32{1, -2}
	scores, argmax = c.Oracle()
	require.Equal(t, []float64{0, 0, 0}, scores)
	require.Equal(t, []int32{2, 2, -1, -1, -1, -1}, argmax)

	d.Mask, c.Weights, c.Normalize = nil, nil, true
	d.Tokens.F32[0], d.Tokens.F32[1] = 0, 0
	scores, _ = c.Oracle()
	r := math.Sqrt(0.5)
	require.InDeltaSlice(t, []float64{2/math.Sqrt(5) + r, 0, -4 / math.Sqrt(10)}, scores, 1e-12)
}

func randomBatch(rng *rand.Rand, dim int, lengths ...int) *Batch {
	offsets := []int{0}
	for _, n := range lengths {
		offsets = append(offsets, offsets[len(offsets)-1]+n)
	}
	x := make([]float32, offsets[len(lengths)]*dim)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return Packed(Float32(x, dim), offsets)
}

// TestOracleGradients: gradients of the oracle against central differences of its
// scores, through the norm and not.
func TestOracleGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, normalize := range []bool{false, true} {
		q, d := randomBatch(rng, 5, 3, 0, 4), randomBatch(rng, 5, 6, 0, 1, 9)
		q.Mask = []bool{true, false, true, true, true, true, true}
		c := Call{Q: q, D: d, Pairs: Listed([]int32{0, 2, 2, 1, 0}, []int32{3, 0, 3, 0, 2}),
			Terms: Terms{Normalize: normalize, Weights: []float32{1, 2, 0.5, 1, -1, 1, 1}}}
		_, argmax := c.Oracle()
		up := []float32{1, -2, 0.5, 3, 1}
		g := GradCall{Q: q, D: d, Pairs: c.Pairs, Terms: c.Terms, Argmax: argmax, Upstream: up}
		_, err := g.Check()
		require.NoError(t, err)
		dq, dd := g.Oracle()
		loss := func() (sum float64) {
			scores, _ := c.Oracle()
			for i, s := range scores {
				sum += s * float64(up[i])
			}
			return sum
		}
		requireDifferences(t, loss, q.Tokens.F32, dq)
		requireDifferences(t, loss, d.Tokens.F32, dd)
	}
}

// requireDifferences compares a gradient with central differences.
func requireDifferences(t *testing.T, loss func() float64, x []float32, gradient []float64) {
	t.Helper()
	for i, v := range x {
		const step = 1.0 / 4096
		x[i] = v + step
		hi, above := loss(), float64(x[i])
		x[i] = v - step
		lo, below := loss(), float64(x[i])
		x[i] = v
		require.InDelta(t, (hi-lo)/(above-below), gradient[i], 1e-5, "value %d", i)
	}
}

func TestOracleChamfer(t *testing.T) {
	x := Packed(Float32([]float32{0, 0, 3, 4}, 2), []int{0, 2})
	y := Packed(Float32([]float32{1, 1, 3, 3}, 2), []int{0, 1, 2, 2})
	c := ChamferCall{X: x, Y: y, Distances: make([]float32, 3)}
	_, err := c.Check()
	require.NoError(t, err)
	d, nx, ny := c.Oracle()
	require.Equal(t, []float64{2 + 13 + 2, 18 + 1 + 1, 0}, d)
	require.Equal(t, []int32{0, 0, 0, 0, -1, -1}, nx)
	require.Equal(t, []int32{0, 1, -1}, ny)
	c.Metric, c.Mean = L1, true
	d, _, _ = c.Oracle()
	require.Equal(t, []float64{(2.0+5)/2 + 2, (6.0+1)/2 + 1, 0}, d)

	rng := rand.New(rand.NewPCG(3, 4))
	for _, metric := range []Metric{SquaredL2, L1} {
		x, y := randomBatch(rng, 4, 3, 5), randomBatch(rng, 4, 6, 0, 2)
		c := ChamferCall{X: x, Y: y, Metric: metric, Mean: metric == L1}
		_, nx, ny := c.Oracle()
		up := []float32{1, -2, 0.5, 1, 1, 3}
		g := ChamferGradCall{X: x, Y: y, Metric: metric, Mean: c.Mean, NearestX: nx, NearestY: ny, Upstream: up}
		_, err := g.Check()
		require.NoError(t, err)
		dx, dy := g.Oracle()
		loss := func() (sum float64) {
			d, _, _ := c.Oracle()
			for i, v := range d {
				sum += v * float64(up[i])
			}
			return sum
		}
		requireDifferences(t, loss, x.Tokens.F32, dx)
		requireDifferences(t, loss, y.Tokens.F32, dy)
	}
}
