package cpu_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Vectors at the ends of what float32 holds.

// TestRowsApartSameBits: what a token of a document gives depends on that token alone,
// and not on those that it shares a block with, some of which have lengths that float32
// has no inverse of. How many share one is a matter of the tier and of the threads.
func TestRowsApartSameBits(t *testing.T) {
	ctx := context.Background()
	const dim = 128
	for i, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16} {
		if !effort.Long() && i > 0 {
			continue
		}
		rng := maxsimtest.Rand(uint64(i))
		q := maxsimtest.Side{Lengths: []int{3}}.Batch(rng, dim)
		d := maxsimtest.Side{Type: kind, Lengths: []int{700, 30, 90}, Masked: float64(i%2) / 10}.Batch(rng, dim)
		maxsimtest.Stretch(rng, d, 0.01)
		apart := &maxsim.Batch{Tokens: d.Tokens, Layout: maxsim.Layout{Count: d.Tokens.Rows(), Stride: 1, Mask: d.Mask}}
		one := &maxsim.Batch{Tokens: q.Tokens, Layout: maxsim.Layout{Count: q.Tokens.Rows(), Stride: 1}}
		head := headCall(rng, q, d, maxsim.All()).Head
		head.Bias = nil // beside which short vectors would be none
		for _, name := range maxsim.Backends() {
			b, err := maxsim.Select(name)
			require.NoError(t, err)
			for _, threads := range []int{1, 3} {
				if !effort.Long() && threads == 1 {
					continue
				}
				terms := maxsim.Terms{Normalize: true, Threads: threads}
				want, got := maxsimtest.NewCall(one, apart, maxsim.All(), terms), maxsimtest.NewCall(one, d, maxsim.All(), terms)
				require.NoError(t, b.Score(ctx, want))
				require.NoError(t, b.Score(ctx, got))
				requireBest(t, d, want.Scores, got.Scores, got.Argmax)
				for _, c := range []*maxsim.Call{want, got} {
					require.NoError(t, b.(maxsim.HeadScorer).ScoreHead(ctx, &maxsim.HeadCall{
						Q: c.Q, D: c.D, Pairs: c.Pairs, Terms: terms, Scores: c.Scores, Head: head}))
				}
				requireBest(t, d, want.Scores, got.Scores, nil)
			}
		}
	}
}

// requireBest checks that scores of single query tokens with documents are the largest
// of those with each of their tokens.
func requireBest(t *testing.T, d *maxsim.Batch, tokens, scores []float32, argmax []int32) {
	t.Helper()
	rows := d.Tokens.Rows()
	for p, score := range scores {
		q, lo, hi := p/d.Len(), d.Offsets[p%d.Len()], d.Offsets[p%d.Len()+1]
		best, at := float32(math.Inf(-1)), 0
		for r := lo; r < hi; r++ {
			if v := tokens[q*rows+r]; d.IsToken(r) && v > best {
				best, at = v, r-lo
			}
		}
		require.Equal(t, math.Float32bits(best), math.Float32bits(score), "pair %d", p)
		if argmax != nil {
			require.Equal(t, int32(at), argmax[p], "pair %d", p)
		}
	}
}

// TestGradientsRange: gradients of tokens of extreme lengths are those of the oracle, and of
// the same bits on all tiers, with any number of threads.
func TestGradientsRange(t *testing.T) {
	const dim = 24
	for i, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16, maxsim.I8} {
		rng := maxsimtest.Rand(uint64(i))
		side := maxsimtest.Side{Type: kind, Lengths: []int{12, 30}}
		q, d := side.Batch(rng, dim), side.Batch(rng, dim)
		maxsimtest.Stretch(rng, q, 0.5)
		maxsimtest.Stretch(rng, d, 0.5)
		var want *maxsim.GradCall
		for _, name := range maxsim.Backends() {
			b, err := maxsim.Select(name)
			require.NoError(t, err)
			for _, threads := range []int{1, 3} {
				terms := maxsim.Terms{Normalize: true, Threads: threads}
				_, dq, dd := compute(t, context.Background(), b, q, d, maxsim.All(), terms)
				if want == nil {
					c := maxsimtest.NewCall(q, d, maxsim.All(), terms)
					require.NoError(t, b.Score(context.Background(), c))
					want = &maxsim.GradCall{Q: q, D: d, Terms: terms, Argmax: c.Argmax, Upstream: c.Scores, DQ: dq, DD: dd}
					oracleQ, oracleD := want.Oracle()
					requireRelative(t, q, oracleQ, dq.F32)
					requireRelative(t, d, oracleD, dd.F32)
				}
				require.Equal(t, want.DQ.F32, dq.F32)
				require.Equal(t, want.DD.F32, dd.F32)
			}
		}
	}
}

// requireRelative checks gradients by rows, each within a share of the largest, all times
// the lengths of their rows.
func requireRelative(t *testing.T, b *maxsim.Batch, want []float64, got []float32) {
	t.Helper()
	dim, most := b.Tokens.Dim, 0.0
	lengths := make([]float64, b.Tokens.Rows())
	for r := range lengths {
		for _, v := range maxsim.OracleRow(b, r, false) {
			lengths[r] = math.Hypot(lengths[r], v)
		}
		for _, v := range want[r*dim : (r+1)*dim] {
			most = max(most, math.Abs(v)*lengths[r])
		}
	}
	for i, v := range got {
		l := lengths[i/dim]
		diff := math.Abs(float64(v)-want[i]) * l
		require.True(t, diff <= 1e-5*most, "row %d of length %g: %g, oracle %g", i/dim, l, v, want[i])
	}
}

// TestScreenedRange: screening changes no bit where products are beyond float32, or below.
func TestScreenedRange(t *testing.T) {
	const dim = 64
	fits := func(length float32) bool { return length > 1e-12 && length < 1e11 }
	for _, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16, maxsim.I8, maxsim.E4M3} {
		for _, docs := range []float32{1e-37, 1e-10, 1, 1e10, 1e32, 1e37} {
			for _, queries := range []float32{1e-35, 1e-10, 1, 1e10, 1e35} {
				for _, few := range []bool{false, true} {
					if !effort.Long() && few == (kind == maxsim.F32 || kind == maxsim.I8) {
						continue
					}
					rng := maxsimtest.Rand(5)
					q := maxsimtest.Side{Lengths: []int{50}}.Batch(rng, dim)
					d := maxsimtest.Side{Type: kind, Lengths: []int{200}}.Batch(rng, dim)
					for i := range d.Tokens.Rows() {
						if !few || i%70 == 7 {
							maxsimtest.Scale(d, i, docs)
						}
					}
					for i := range q.Tokens.Rows() {
						if !few || i == 3 {
							maxsimtest.Scale(q, i, queries)
						}
					}
					requireScreened(t, q, d, func(normalize bool) bool {
						return normalize || fits(docs) && fits(queries)
					})
				}
			}
		}
	}
}
