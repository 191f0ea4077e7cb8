package main

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// ternary is a codec of three levels a component, −1, 0 and 1: five of them fit into a
// byte, so they take 1.6 bits. It has the centroids and the scales of a trained codec and
// chooses levels as that does: the best direction over several lengths of the vector, then
// dimension by dimension. There is no packed form of it: what is measured is what it would
// lose.
type ternary struct {
	dim       int
	centroids []float32
	dims      []float32 // scale of each dimension
	each      []float32 // scale of each centroid
	step      float32
}

// lengths of the vector that are tried, relative to the one that ends at the centroid.
var lengths = []float32{0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.3, 1.4}

func newTernary(ours *codec.Quantizer, m *matrix, codes []uint32) *ternary {
	k := ours.Kernel()
	t := &ternary{dim: m.dim, centroids: ours.Centroids(), dims: k.DimScale, each: k.CentroidScale}
	if t.dims == nil {
		t.dims = ones(m.dim)
	}
	if t.each == nil {
		t.each = ones(k.Centroids.K)
	}
	// The distance of levels with the least error on some tokens.
	const rows = 4000
	rng := rand.New(rand.NewPCG(3, 3))
	picked := make([]int, min(rows, len(codes)))
	for i := range picked {
		picked[i] = rng.IntN(len(codes))
	}
	least := math.Inf(1)
	best := float32(0)
	y := make([]float32, m.dim)
	for f := float32(0.6); f < 2.4; f += 0.1 {
		t.step = f * k.Codebook.Step
		sum := 0.0
		for _, i := range picked {
			x := m.tokens[i*m.dim : (i+1)*m.dim]
			t.decode(y, x, codes[i])
			sum += squaredDistance(x, y)
		}
		if sum < least {
			least, best = sum, t.step
		}
	}
	t.step = best
	return t
}

func ones(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

func squaredDistance(a, b []float32) (sum float64) {
	for j := range a {
		d := float64(a[j]) - float64(b[j])
		sum += d * d
	}
	return sum
}

// decode writes what a token would be stored as, of unit length.
func (t *ternary) decode(y, x []float32, code uint32) {
	c := t.centroids[int(code)*t.dim : (int(code)+1)*t.dim]
	a := t.each[code] * t.step
	var cos float32
	for j, v := range x {
		cos += v * c[j]
	}
	base := 1 / max(cos, 0.2)
	levels := func(length float32) (dot, norm float32) {
		for j, v := range x {
			w := a * t.dims[j]
			y[j] = c[j] + w*three((length*v-c[j])/w)
			dot += v * y[j]
			norm += y[j] * y[j]
		}
		return dot, norm
	}
	best, at := float32(-2), base
	for _, l := range lengths {
		if dot, norm := levels(l * base); dot/sqrt(norm) > best {
			best, at = dot/sqrt(norm), l*base
		}
	}
	dot, norm := levels(at)
	for j, v := range x {
		w := a * t.dims[j]
		now := y[j]
		for _, b := range []float32{-1, 0, 1} {
			z := c[j] + w*b
			d, n := dot+v*(z-y[j]), norm+z*z-y[j]*y[j]
			if d/sqrt(n) > dot/sqrt(norm) {
				dot, norm, now = d, n, z
				y[j] = z
			}
		}
		y[j] = now
	}
	inv := 1 / sqrt(norm)
	for j := range y {
		y[j] *= inv
	}
}

func three(x float32) float32 { return float32(math.Round(float64(max(min(x, 1), -1)))) }

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// ternaryOutcome measures three levels on the centroids and scales of a codec.
func (s *study) ternaryOutcome(ctx context.Context, ours *codec.Quantizer, m *matrix, codes []uint32) (r outcome, err error) {
	t := newTernary(ours, m, codes)
	stored := &matrix{dim: m.dim, offsets: m.offsets, ids: m.ids, tokens: make([]float32, len(m.tokens))}
	sums := make([]float64, parallel.Blocks(len(codes), encodeRows))
	err = parallel.Do(ctx, len(sums), s.o.train.Threads, func(b int) error {
		for i := b * encodeRows; i < min((b+1)*encodeRows, len(codes)); i++ {
			x, y := m.tokens[i*m.dim:(i+1)*m.dim], stored.tokens[i*m.dim:(i+1)*m.dim]
			t.decode(y, x, codes[i])
			sums[b] += squaredDistance(x, y)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	be, err := maxsim.Select(s.o.train.Backend.Name())
	if err != nil {
		return r, err
	}
	scores := newTable(len(s.c.queries.ids), len(m.ids))
	err = be.Score(ctx, &maxsim.Call{Q: s.c.queries.batch(), D: stored.batch(), Scores: scores.scores, Terms: maxsim.Terms{Threads: s.o.train.Threads}})
	if err != nil {
		return r, err
	}
	for q := range s.c.queries.ids {
		scores.put(q, scores.row(q), s.c)
	}
	if r, err = s.measure(&scores); err != nil {
		return r, err
	}
	sum := 0.0
	for _, x := range sums {
		sum += x
	}
	r.vector = math.Sqrt(sum / float64(len(codes)))
	return r, nil
}
