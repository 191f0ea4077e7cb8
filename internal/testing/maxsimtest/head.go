package maxsimtest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// headScores compares scores of hidden states with the oracle, over shapes, layouts, types and pairs.
func (s *suite) headScores(t *testing.T) {
	for i, shape := range []struct{ hidden, dim, lq int }{
		{1, 1, 1}, {16, 9, 33}, {40, 24, 33}, {96, 64, 7}, {129, 130, 5}, {384, 96, 32},
		{768, 128, 40}, {200, 128, 130}, {1024, 128, 32}, {1536, 64, 5}, {2048, 128, 32}, {512, 300, 9},
	} {
		tooLarge := s.o.MaxDim > 0 && max(shape.hidden, shape.dim) > s.o.MaxDim
		if tooLarge || s.isBrief() && shape.hidden*shape.dim > 6000 {
			continue
		}
		for j, kind := range s.o.typesOrAll() {
			t.Run(fmt.Sprintf("h=%d/d=%d/%s", shape.hidden, shape.dim, kind), func(t *testing.T) {
				rng := Rand(uint64(100 + 10*i + j))
				q := Side{Type: kind, Lengths: []int{shape.lq, 0, 3}, Masked: float64(j%2) / 5}.Batch(rng, shape.dim)
				d := Side{
					Type:    kind,
					Lengths: []int{9, 0, 70, 1, 5, 16},
					Padded:  j == 2,
					Masked:  float64(i%2) / 4,
				}.Batch(rng, shape.hidden)
				weights := RoundedTo(kind, Normal(rng, shape.hidden*shape.dim), shape.hidden, false)
				c := &maxsim.HeadCall{Q: q, D: d, Head: maxsim.Head{Weights: weights}}
				if j%2 == 0 {
					c.Head.Bias = Normal(rng, shape.dim)
				}
				for name, p := range pairsOf(rng, q.Len(), d.Len()) {
					if shape.hidden*shape.dim > 6000 && (len(name)+i+j)%3 > 0 {
						continue // the oracle takes long: each kind of pairs has some of the shapes
					}
					c.Pairs = p
					c.Normalize = (len(name)+i+j)%2 == 0
					c.Weights = nil
					if len(name)%2 == 0 {
						c.Weights = Normal(rng, q.Tokens.Rows())
					}
					c.Scores = NewCall(q, d, p, maxsim.Terms{}).Scores
					s.checkHead(t, c)
				}
				// One query, which a backend may score as it reads the hidden states.
				side := Side{Type: kind, Lengths: []int{min(shape.lq, 32)}, Masked: float64(j%2) / 5}
				single := side.Batch(rng, shape.dim)
				docs := d.Len() - i%2
				c.Q, c.Pairs, c.Weights, c.Scores = single, maxsim.Range(0, docs), nil, make([]float32, docs)
				for range 2 {
					s.checkHead(t, c)
					c.Normalize, c.Weights = !c.Normalize, Normal(rng, single.Tokens.Rows())
				}
			})
		}
	}
	s.headHeld(t)
}

// checkHead executes a call of batches and compares it with the oracle, within the error of
// float32 sums in any order.
func (s *suite) checkHead(t *testing.T, c *maxsim.HeadCall) {
	t.Helper()
	for i := range c.Scores {
		c.Scores[i] = float32(math.NaN())
	}
	require.NoError(t, s.b.(maxsim.HeadScorer).ScoreHead(background(), c))
	want := c.Oracle()
	q, d := c.Q.(*maxsim.Batch), c.D.(*maxsim.Batch)
	w := maxsim.Single(c.Head.Weights)
	var frobenius, bias float64
	for r := range w.Tokens.Rows() {
		l := length(w, r)
		frobenius += l * l
	}
	frobenius = math.Sqrt(frobenius)
	for _, v := range c.Head.Bias {
		bias = math.Hypot(bias, float64(v))
	}
	tokens := c.Head.OracleTokens(d, false)
	e := s.o.epsilon(d.Tokens.Type, d.Tokens.Dim) + s.o.epsilon(d.Tokens.Type, q.Tokens.Dim)
	for p, got := range c.Scores {
		qi, di := c.PairAt(p, d.Len())
		dlo, dhi := d.Span(di)
		var largest float64 // bound of the sum of the magnitudes of a token vector's terms
		for r := dlo; r < dhi; r++ {
			if !d.IsToken(r) {
				continue
			}
			size := frobenius*length(d, r) + bias
			if c.Normalize {
				var square float64
				for _, v := range tokens[r] {
					square += v * v
				}
				size /= max(math.Sqrt(square), 1e-30)
			}
			largest = max(largest, size)
		}
		qlo, qhi := q.Span(qi)
		allowed := math.Abs(want[p])/(1<<23) + 1e-30
		for r := qlo; r < qhi; r++ {
			allowed += e * largest * length(q, r) * math.Abs(weight(&c.Terms, r))
		}
		if diff := math.Abs(float64(got) - want[p]); !(diff <= allowed) {
			t.Fatalf("pair %d (query %d, document %d) scores %g, oracle %g, allowed %g",
				p, qi, di, got, want[p], allowed)
		}
	}
}

// headHeld checks that held operands give the same scores, and that invalid calls are refused.
func (s *suite) headHeld(t *testing.T) {
	rng := Rand(39)
	q, d := Side{Lengths: []int{12, 3}}.Batch(rng, 16), Side{Lengths: []int{30, 0, 7}}.Batch(rng, 24)
	c := &maxsim.HeadCall{
		Q:      q,
		D:      d,
		Head:   maxsim.Head{Weights: maxsim.Float32(Normal(rng, 16*24), 24), Bias: Normal(rng, 16)},
		Scores: make([]float32, 6),
	}
	s.checkHead(t, c)
	want := append([]float32(nil), c.Scores...)
	hd, err := s.b.Prepare(background(), d)
	require.NoError(t, err)
	hq, err := s.b.Prepare(background(), q)
	require.NoError(t, err)
	heads := s.b.(maxsim.HeadScorer)
	heldCall := *c
	heldCall.D, heldCall.Q, heldCall.Scores = hd, hq, make([]float32, 6)
	require.NoError(t, heads.ScoreHead(background(), &heldCall))
	for i, v := range want {
		require.InDelta(t, v, heldCall.Scores[i], 1e-4*float64(1+max(v, -v)))
	}
	require.NoError(t, hd.Close())
	require.NoError(t, hq.Close())
	require.ErrorIs(t, heads.ScoreHead(background(), &heldCall), maxsim.ErrForeign)

	for name, spoil := range map[string]func(c *maxsim.HeadCall){
		"rows":    func(c *maxsim.HeadCall) { c.Head.Weights = maxsim.Float32(c.Head.Weights.F32[24:], 24) },
		"hidden":  func(c *maxsim.HeadCall) { c.Head.Weights = maxsim.Float32(c.Head.Weights.F32, 16) },
		"bias":    func(c *maxsim.HeadCall) { c.Head.Bias = c.Head.Bias[1:] },
		"scores":  func(c *maxsim.HeadCall) { c.Scores = c.Scores[1:] },
		"weights": func(c *maxsim.HeadCall) { c.Weights = make([]float32, 3) },
		"pairs":   func(c *maxsim.HeadCall) { c.Pairs = maxsim.Range(2, 3) },
		"none":    func(c *maxsim.HeadCall) { c.Head = maxsim.Head{} },
	} {
		bad := *c
		spoil(&bad)
		require.ErrorIs(t, heads.ScoreHead(background(), &bad), kernels.ErrShape, name)
	}
}
