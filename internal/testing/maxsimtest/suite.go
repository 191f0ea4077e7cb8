package maxsimtest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Options configure the tests for a backend. With the zero value it must support everything,
// with the precision of float32.
type Options struct {
	// Types lists the types of both operands. Nil Types mean all.
	Types []maxsim.Type
	// Epsilon returns the largest error of a product of dim dimensions, relative to
	// the sum of the magnitudes of its terms. A nil Epsilon means that of float32 sums.
	Epsilon func(t maxsim.Type, dim int) float64
	// MaxDim is the largest dimension. 0 means [kernels.MaxDim].
	MaxDim int
	// Brief runs a few cases only, for a backend with the bits of another one that is tested
	// in full.
	Brief bool
}

// epsilon returns Epsilon, or the error of float32 sums.
func (o *Options) epsilon(t maxsim.Type, dim int) float64 {
	if o.Epsilon != nil {
		return o.Epsilon(t, dim)
	}
	return float64(dim+24) / (1 << 24)
}

// typesOrAll returns Types, or all types.
func (o *Options) typesOrAll() []maxsim.Type {
	if o.Types != nil {
		return o.Types
	}
	return []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.BF16, maxsim.I8, maxsim.E4M3}
}

// Run tests a backend against the oracle.
func Run(t *testing.T, b maxsim.Backend, o Options) {
	s := suite{b, o}
	t.Run("Shapes", s.shapes)
	t.Run("Lengths", s.lengths)
	t.Run("Layouts", s.layouts)
	t.Run("Types", s.typePairs)
	t.Run("Ties", s.tiedProducts)
	t.Run("Negative", s.negative)
	t.Run("Normalize", s.normalize)
	t.Run("Weights", s.weights)
	t.Run("TopK", s.bestDocuments)
	t.Run("Compressed", s.compressed)
	if _, ok := s.b.(maxsim.Ranker); ok {
		t.Run("Rank", s.ranking)
	}
	if _, ok := s.b.(maxsim.HeadScorer); ok {
		t.Run("Head", s.headScores)
	}
	t.Run("Held", s.heldOperands)
	t.Run("Gradients", s.gradients)
	t.Run("GradientBuffers", s.gradientBuffers)
	t.Run("Differences", s.differences)
	t.Run("Concurrent", s.concurrent)
	t.Run("Context", s.contexts)
	t.Run("BadInput", s.badInput)
	if _, ok := b.(maxsim.ChamferScorer); ok {
		t.Run("Chamfer", s.chamfer)
		t.Run("ChamferTypes", s.chamferTypes)
		t.Run("ChamferDifferences", s.chamferDifferences)
		t.Run("ChamferReads", s.chamferReads)
		t.Run("ChamferFaults", s.chamferFaults)
	}
}

type suite struct {
	b maxsim.Backend
	o Options
}

// isBrief reports whether a few cases of each kind are enough.
func (s *suite) isBrief() bool { return s.o.Brief || !effort.Long() }

func background() context.Context { return context.Background() }

// shapes covers dimensions and query lengths about those of tiles.
func (s *suite) shapes(t *testing.T) {
	dims := []int{
		1, 2, 3, 7, 8, 15, 16, 17, 33, 48, 64, 96, 100, 111, 128, 130, 250, 256, 513, 768, 1024, 4096,
	}
	for i, dim := range dims {
		if s.o.MaxDim > 0 && dim > s.o.MaxDim {
			continue
		}
		for j, lq := range []int{1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 97, 128, 257} {
			tooMany := (i+j)%4 != 0 && dim != 128 || dim > 512 && lq > 33
			if tooMany || s.isBrief() && ((i+j)%12 != 0 || dim > 1024) {
				continue
			}
			t.Run(fmt.Sprintf("d=%d/Lq=%d", dim, lq), func(t *testing.T) {
				rng := Rand(uint64(i*100 + j))
				q := Side{Lengths: []int{lq, 3}}.Batch(rng, dim)
				d := Side{Lengths: []int{5, 0, 1, 13, 40}}.Batch(rng, dim)
				c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
				s.checkScores(t, c, expect(c))
			})
		}
	}
}

// lengths covers every document length over the tile sizes of any backend.
func (s *suite) lengths(t *testing.T) {
	var lengths []int
	for l := range 67 {
		lengths = append(lengths, l)
	}
	lengths = append(lengths, 95, 96, 97, 127, 128, 129, 191, 192, 193, 255, 256, 257)
	if !s.isBrief() {
		lengths = append(lengths, 1000)
	}
	rng := Rand(2)
	d := Side{Lengths: lengths}.Batch(rng, 24)
	for _, lq := range []int{1, 5, 32, 40} {
		q := Side{Lengths: []int{lq}}.Batch(rng, 24)
		c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
		want := expect(c)
		s.checkScores(t, c, want)
		c.Argmax = nil
		s.checkScores(t, c, want)
	}
	if s.isBrief() {
		return
	}
	long := Side{Lengths: []int{100_000, 3}}.Batch(rng, 2)
	c := NewCall(Side{Lengths: []int{2}}.Batch(rng, 2), long, maxsim.All(), maxsim.Terms{})
	s.checkScores(t, c, expect(c))
}

// pairsOf returns pairs of every kind, by name.
func pairsOf(rng *rand.Rand, nq, nd int) map[string]maxsim.Pairs {
	list := func(n, below int) []int32 {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(rng.IntN(below))
		}
		return x
	}
	return map[string]maxsim.Pairs{
		"all":         maxsim.All(),
		"range":       maxsim.Range(1, nd-2),
		"empty range": maxsim.Range(1, 0),
		"candidates":  maxsim.Candidates(4, list(4*nq, nd)),
		"own":         maxsim.OwnDocuments(nd / nq),
		"listed":      maxsim.Listed(list(9, nq), list(9, nd)),
		"none listed": maxsim.Listed(nil, nil),
	}
}

// layouts covers packed, padded and masked batches with pairs of every kind.
func (s *suite) layouts(t *testing.T) {
	rng := Rand(3)
	for _, q := range []Side{
		{Lengths: []int{3, 17, 0, 33}},
		{Lengths: []int{3, 17, 0, 33}, Padded: true},
		{Lengths: []int{3, 17, 0, 40}, Padded: true, Masked: 0.4},
		{Lengths: []int{3, 17, 0, 33}, Apart: 5},
	} {
		for _, d := range []Side{
			{Lengths: []int{4, 0, 30, 13, 1, 70, 2, 2}},
			{Lengths: []int{4, 0, 30, 13, 1, 70, 2, 2}, Masked: 0.9},
			{Lengths: []int{4, 0, 30, 13, 1, 40, 2, 2}, Padded: true},
			{Lengths: []int{4, 0, 30, 13, 1, 40, 2, 2}, Padded: true, Masked: 0.3},
			{Lengths: []int{4, 0, 30, 13, 1, 40, 2, 2}, Padded: true, Apart: 7},
		} {
			qb, db := q.Batch(rng, 20), d.Batch(rng, 20)
			for name, p := range pairsOf(rng, qb.Len(), db.Len()) {
				t.Run(name, func(t *testing.T) {
					c := NewCall(qb, db, p, maxsim.Terms{Threads: 1 + rng.IntN(3)})
					s.checkScores(t, c, expect(c))
				})
			}
		}
	}
	// Offsets that begin in the middle, and no items.
	q := maxsim.Packed(maxsim.Float32(Normal(rng, 9*4), 4), []int{2, 7})
	d := maxsim.Packed(maxsim.Float32(Normal(rng, 9*4), 4), []int{3, 5, 8})
	c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
	s.checkScores(t, c, expect(c))
	d.Offsets = []int{3}
	c = NewCall(q, d, maxsim.All(), maxsim.Terms{})
	s.checkScores(t, c, expect(c))
	c = NewCall(maxsim.Single(maxsim.Float32(nil, 4)), d, maxsim.All(), maxsim.Terms{})
	s.checkScores(t, c, expect(c))
}

// typePairs covers every type of queries with every type of documents.
func (s *suite) typePairs(t *testing.T) {
	for i, qt := range s.o.typesOrAll() {
		for j, dt := range s.o.typesOrAll() {
			t.Run(fmt.Sprintf("%s/%s", qt, dt), func(t *testing.T) {
				rng := Rand(uint64(10*i + j))
				for _, dim := range []int{37, 128} {
					if s.isBrief() && dim > 64 {
						continue
					}
					q := Side{
						Type:    qt,
						Affine:  j%2 == 1,
						Lengths: []int{33, 2},
						Masked:  float64(i%2) / 4,
					}.Batch(rng, dim)
					d := Side{
						Type:    dt,
						Affine:  i%2 == 1,
						Lengths: []int{9, 0, 50, 1},
						Padded:  j == 2,
						Masked:  float64(j%2) / 4,
					}.Batch(rng, dim)
					for _, normalize := range []bool{false, true} {
						c := NewCall(q, d, maxsim.All(), maxsim.Terms{Normalize: normalize})
						s.checkScores(t, c, expect(c))
					}
				}
			})
		}
	}
}

// tiedProducts checks that the first of equal products wins, where products are exact.
func (s *suite) tiedProducts(t *testing.T) {
	rng := Rand(4)
	for _, kind := range s.o.typesOrAll() {
		if kind == maxsim.I8 || kind == maxsim.E4M3 {
			continue // scales make products inexact
		}
		q := Side{Type: kind, Lengths: []int{40, 7}}.SmallBatch(rng, 6)
		d := Side{Type: kind, Lengths: []int{300, 5, 0, 90, 24, 25}, Masked: 0.2}.SmallBatch(rng, 6)
		c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
		require.NoError(t, s.b.Score(background(), c))
		want, argmax := c.Oracle()
		for i, w := range want {
			require.Equal(t, float32(w), c.Scores[i])
		}
		require.Equal(t, argmax, c.Argmax)
	}
}

// negative catches maxima that start at 0 and padding that wins.
func (s *suite) negative(t *testing.T) {
	for _, padded := range []bool{false, true} {
		lengths := []int{1, 2, 7, 11, 12, 13, 16, 17, 23, 31, 33, 60, 63, 64, 65}
		q := Side{Lengths: []int{33, 1}}.Batch(Rand(5), 16)
		d := Side{Lengths: lengths, Padded: padded}.Batch(Rand(6), 16)
		for i := range q.Tokens.F32 {
			q.Tokens.F32[i] = 1
		}
		for i := range d.Tokens.F32 {
			d.Tokens.F32[i] = -1 - d.Tokens.F32[i]*d.Tokens.F32[i]
		}
		if padded { // padding would win
			for i := range d.Len() {
				_, hi := d.Span(i)
				clear(d.Tokens.F32[hi*16 : (i+1)*d.Stride*16])
			}
		}
		c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
		s.checkScores(t, c, expect(c))
		for _, v := range c.Scores {
			require.Negative(t, v)
		}
	}
}

// normalize has vectors of all lengths, also of 0 and beyond the range of float32 squares.
func (s *suite) normalize(t *testing.T) {
	rng := Rand(7)
	q, d := Side{Lengths: []int{32, 5}}.Batch(rng, 40), Side{Lengths: []int{0, 1, 70, 13}}.Batch(rng, 40)
	clear(q.Tokens.F32[:3*40])
	clear(d.Tokens.F32[:2*40])
	for i := range d.Tokens.F32[5*40 : 20*40] {
		d.Tokens.F32[5*40+i] *= float32(math.Pow(10, float64(i/40-7)))
	}
	for _, p := range pairsOf(rng, 2, 4) {
		c := NewCall(q, d, p, maxsim.Terms{Normalize: true})
		s.checkScores(t, c, expect(c))
	}
	for i := range d.Tokens.F32 { // squares beyond the range of float32
		d.Tokens.F32[i] *= []float32{1e-25, 1e25}[i/40%2]
	}
	c := NewCall(q, d, maxsim.All(), maxsim.Terms{Normalize: true})
	s.checkScores(t, c, expect(c))
}

// weights has weights of either sign, and of 0.
func (s *suite) weights(t *testing.T) {
	rng := Rand(8)
	q, d := Side{Lengths: []int{33, 5}, Masked: 0.1}.Batch(rng, 40), Side{Lengths: []int{0, 1, 70, 13}}.Batch(rng, 40)
	for _, w := range [][]float32{Normal(rng, 38), make([]float32, 38)} {
		c := NewCall(q, d, maxsim.All(), maxsim.Terms{Weights: w})
		s.checkScores(t, c, expect(c))
	}
}

// heldOperands checks that held operands give the results of batches, until they are closed.
func (s *suite) heldOperands(t *testing.T) {
	rng := Rand(9)
	for i, dim := range []int{5, 64, 128, 200} {
		for _, normalize := range []bool{false, true} {
			if s.isBrief() && normalize == (i%2 == 0) {
				continue
			}
			q := Side{Lengths: []int{32, 0, 7}}.Batch(rng, dim)
			docs := Side{Lengths: []int{100, 0, 1, 40, 17, 13, 5}, Masked: float64(i%2) / 5, Padded: i == 3}
			d := docs.Batch(rng, dim)
			if i == 1 { // many close products, and rows of zeros
				for j, v := range Small(rng, len(d.Tokens.F32)) {
					d.Tokens.F32[j] = v
				}
				clear(d.Tokens.F32[3*dim : 9*dim])
			}
			hd, err := s.b.Prepare(background(), d)
			require.NoError(t, err)
			hq, err := s.b.Prepare(background(), q)
			require.NoError(t, err)
			for _, p := range pairsOf(rng, q.Len(), d.Len()-1) {
				if p.Kind == maxsim.CandidatePairs && p.Docs == nil {
					continue
				}
				terms := maxsim.Terms{Normalize: normalize, Threads: 2}
				want := expect(NewCall(q, d, p, terms))
				c := NewCall(q, d, p, terms)
				c.D = hd
				s.checkScores(t, c, want)
				c.Q = hq
				s.checkScores(t, c, want)
				c.Argmax = nil
				s.checkScores(t, c, want)
			}
			require.NoError(t, hd.Close())
			require.NoError(t, hd.Close())
			require.NoError(t, hq.Close())
			c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
			c.D = hd
			require.ErrorIs(t, s.b.Score(background(), c), maxsim.ErrForeign)
		}
	}
	side := Side{Lengths: []int{2}}
	c := NewCall(side.Batch(rng, 4), side.Batch(rng, 4), maxsim.All(), maxsim.Terms{})
	c.Q = foreign{c.Q}
	require.ErrorIs(t, s.b.Score(background(), c), maxsim.ErrForeign)
	_, err := s.b.Prepare(background(), maxsim.Packed(maxsim.Float32(nil, 4), []int{1}))
	require.ErrorIs(t, err, kernels.ErrShape)
}

// foreign is an operand that no backend holds.
type foreign struct{ maxsim.Operand }

// concurrent checks that calls at the same time, on one held operand, give the same bits.
func (s *suite) concurrent(t *testing.T) {
	rng := Rand(11)
	d := Side{Lengths: []int{30, 5, 0, 70, 12}}.Batch(rng, 32)
	h, err := s.b.Prepare(background(), d)
	require.NoError(t, err)
	defer h.Close()
	var wg sync.WaitGroup
	for i := range 6 {
		q := Side{Lengths: []int{8 * i, 5}}.Batch(rng, 32)
		want := NewCall(q, d, maxsim.All(), maxsim.Terms{})
		want.D = h
		require.NoError(t, s.b.Score(background(), want))
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 10 {
				c := NewCall(q, d, maxsim.All(), maxsim.Terms{Threads: i%3 + 1})
				c.D = h
				if err := s.b.Score(background(), c); err != nil {
					t.Error(err)
				}
				for j, v := range c.Scores {
					if v != want.Scores[j] {
						t.Errorf("pair %d: %g, then %g", j, want.Scores[j], v)
					}
				}
			}
		}()
	}
	wg.Wait()
}

// contexts checks that canceled contexts end calls.
func (s *suite) contexts(t *testing.T) {
	canceled, cancel := context.WithCancel(background())
	cancel()
	rng := Rand(12)
	q, d := Side{Lengths: []int{8, 5}}.Batch(rng, 32), Side{Lengths: []int{30, 5}}.Batch(rng, 32)
	c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
	require.ErrorIs(t, s.b.Score(canceled, c), context.Canceled)
	_, err := s.b.Prepare(canceled, d)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.b.Score(background(), c))
	g := &maxsim.GradCall{Q: q, D: d, Argmax: c.Argmax, DQ: NewGradient(q, maxsim.F32)}
	require.ErrorIs(t, s.b.Gradients(canceled, g), context.Canceled)
}

// badInput checks that a backend refuses the calls that Check refuses, and writes nothing.
func (s *suite) badInput(t *testing.T) {
	rng := Rand(13)
	q, d := Side{Lengths: []int{8, 5}}.Batch(rng, 32), Side{Lengths: []int{30, 5}}.Batch(rng, 32)
	c := NewCall(q, d, maxsim.All(), maxsim.Terms{})
	require.NoError(t, s.b.Score(background(), c))
	before := append([]float32{}, c.Scores...)
	d.Offsets[1] = 40
	require.ErrorIs(t, s.b.Score(background(), c), kernels.ErrShape)
	require.Equal(t, before, c.Scores)
	d.Offsets[1] = 30
	c.Argmax[0] = 30
	g := &maxsim.GradCall{Q: q, D: d, Argmax: c.Argmax, DQ: NewGradient(q, maxsim.F32)}
	require.ErrorIs(t, s.b.Gradients(background(), g), kernels.ErrShape)
}
