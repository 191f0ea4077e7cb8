package maxsimtest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Check compares scores and argmaxima of a call with the oracle. An argmax may be that of
// another product whose difference to the largest is within the rounding error.
func Check(t *testing.T, b maxsim.Backend, c *maxsim.Call, o Options) {
	t.Helper()
	CheckAgainst(t, b, c, c, o)
}

// CheckAgainst executes c, whose operands may be held, and compares it with the oracle's results for batches, the same
// call with batches as operands.
func CheckAgainst(t *testing.T, b maxsim.Backend, c, batches *maxsim.Call, o Options) {
	t.Helper()
	s := suite{b, o}
	s.checkScores(t, c, expect(batches))
}

// expectation has the oracle's results for a call of batches.
type expectation struct {
	batches *maxsim.Call
	scores  []float64
	argmax  []int32
	sizes   []float64
}

// expect computes the oracle's results.
func expect(batches *maxsim.Call) *expectation {
	e := &expectation{batches: batches, sizes: magnitudes(batches)}
	e.scores, e.argmax = batches.Oracle()
	return e
}

// checkScores executes c and compares its results with the expectation.
func (s *suite) checkScores(t *testing.T, c *maxsim.Call, expected *expectation) {
	t.Helper()
	batches, want, argmax := expected.batches, expected.scores, expected.argmax
	for i := range c.Scores {
		c.Scores[i] = float32(math.NaN())
	}
	require.NoError(t, s.b.Score(background(), c))
	q, d := batches.Q.(*maxsim.Batch), batches.D.(*maxsim.Batch)
	e := s.o.epsilon(d.Tokens.Type, d.Tokens.Dim)
	if q.Tokens.Type != d.Tokens.Type {
		e = max(e, s.o.epsilon(q.Tokens.Type, d.Tokens.Dim))
	}
	stride := q.MaxRows()
	sizes := expected.sizes
	for p, got := range c.Scores {
		qi, di := c.PairAt(p, d.Len())
		lo, _ := q.Span(qi)
		var allowed float64
		for r, best := range argmax[p*stride : (p+1)*stride] {
			winner := best
			if c.Argmax != nil {
				winner = c.Argmax[p*stride+r]
			}
			if best < 0 || winner < 0 {
				require.Equal(t, best, winner, "argmax of pair %d, row %d", p, r)
				continue
			}
			slack := e * sizes[p*stride+r]
			allowed += slack * math.Abs(weight(&batches.Terms, lo+r))
			if winner == best {
				continue
			}
			first, last := d.Span(di)
			require.Less(t, int(winner), last-first, "argmax of pair %d, row %d", p, r)
			require.True(t, d.IsToken(first+int(winner)), "a masked token wins")
			bestProduct := batches.OracleProduct(qi, r, di, int(best))
			other := batches.OracleProduct(qi, r, di, int(winner))
			require.GreaterOrEqual(t, other, bestProduct-2*slack,
				"argmax of pair %d, row %d is %d, not %d", p, r, winner, best)
		}
		allowed += math.Abs(want[p])/(1<<23) + 1e-30
		// InDelta would accept NaN as equal to NaN.
		if diff := math.Abs(float64(got) - want[p]); !(diff <= allowed) {
			t.Fatalf("pair %d (query %d, document %d) scores %g, oracle %g, allowed %g",
				p, qi, di, got, want[p], allowed)
		}
	}
}

// weight returns the weight of a row of the queries.
func weight(t *maxsim.Terms, row int) float64 {
	if t.Weights == nil {
		return 1
	}
	return float64(t.Weights[row])
}

// magnitudes returns, for each pair and query row, a bound of the sum of the magnitudes of the
// terms of a product: |q|·|d|, by Cauchy and Schwarz.
func magnitudes(c *maxsim.Call) []float64 {
	q, d := c.Q.(*maxsim.Batch), c.D.(*maxsim.Batch)
	lengths := func(b *maxsim.Batch) []float64 {
		l := make([]float64, b.Tokens.Rows())
		for r := range l {
			if l[r] = length(b, r); c.Normalize {
				l[r] = 1
			}
		}
		return l
	}
	ql, dl := lengths(q), lengths(d)
	stride := q.MaxRows()
	sizes := make([]float64, len(c.Scores)*stride)
	for p := range c.Scores {
		qi, di := c.PairAt(p, d.Len())
		lo, hi := d.Span(di)
		var longest float64
		for _, l := range dl[lo:hi] {
			longest = max(longest, l)
		}
		qlo, qhi := q.Span(qi)
		for r := qlo; r < qhi; r++ {
			sizes[p*stride+r-qlo] = ql[r] * longest
		}
	}
	return sizes
}
