package cpu_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/internal/testing/roofline"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// benchCase is one query and documents of lengths lo to hi.
type benchCase struct {
	lq, docs, lo, hi, dim int
}

func (c benchCase) String() string {
	return fmt.Sprintf("d=%d/Lq=%d/%dx%d-%d", c.dim, c.lq, c.docs, c.lo, c.hi)
}

func (c benchCase) batches(kind maxsim.Type) (q, d *maxsim.Batch) {
	rng := maxsimtest.Rand(1)
	lengths := make([]int, c.docs)
	for i := range lengths {
		lengths[i] = c.lo + rng.IntN(c.hi-c.lo+1)
	}
	side := maxsimtest.Side{Type: kind, Lengths: []int{c.lq}, Unit: true}
	q = side.Batch(rng, c.dim)
	side.Lengths = lengths
	return q, side.Batch(rng, c.dim)
}

var benchCases = []benchCase{
	{32, 1000, 40, 160, 128}, {32, 100, 40, 160, 128}, {8, 100, 40, 160, 128}, {32, 64, 256, 256, 128}, {32, 16, 1024, 1024, 128},
	{128, 16, 256, 256, 128}, {128, 8, 1024, 1024, 128}, {1024, 8, 256, 256, 128}, {1024, 4, 1024, 1024, 128}, {32, 32, 256, 256, 768},
}

// BenchmarkScore is one thread; fma/peak is the share of what the processor's
// multiply-adds can do.
func BenchmarkScore(b *testing.B) {
	for _, name := range maxsim.Backends() {
		be, err := maxsim.Select(name)
		require.NoError(b, err)
		lanes := map[string]int{"avx2": 8}[name]
		if lanes == 0 {
			lanes = 16
		}
		peak := roofline.FMAs(lanes)
		for _, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16, maxsim.F16, maxsim.I8} {
			for _, hold := range []bool{false, true} {
				for _, c := range benchCases {
					b.Run(fmt.Sprintf("%s/%s/held=%v/%s", name, kind, hold, c), func(b *testing.B) {
						q, d := c.batches(kind)
						call := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{Threads: 1})
						call.Argmax = nil
						if hold {
							call.D, err = be.Prepare(context.Background(), d)
							require.NoError(b, err)
						}
						for b.Loop() {
							require.NoError(b, be.Score(context.Background(), call))
						}
						perToken := b.Elapsed().Seconds() / float64(b.N) / float64(d.Tokens.Rows())
						b.ReportMetric(perToken*1e9, "ns/token")
						b.ReportMetric(2*float64(c.lq*c.dim)/perToken/peak, "fma/peak")
					})
				}
			}
		}
	}
}

// BenchmarkGradients is forward with argmaxima, and both gradients, in turn: forward is
// its share of the time of a backward.
func BenchmarkGradients(b *testing.B) {
	be, err := maxsim.Select("")
	require.NoError(b, err)
	for _, s := range []struct{ nq, lq, nd, ld int }{{1, 32, 256, 300}, {16, 32, 16, 300}, {64, 32, 64, 300}, {16, 32, 16, 1024}} {
		rng := maxsimtest.Rand(1)
		side := func(n, l int) *maxsim.Batch {
			lengths := make([]int, n)
			for i := range lengths {
				lengths[i] = l
			}
			return maxsimtest.Side{Lengths: lengths, Unit: true}.Batch(rng, 128)
		}
		q, d := side(s.nq, s.lq), side(s.nd, s.ld)
		c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{Threads: 1})
		g := &maxsim.GradCall{Q: q, D: d, Argmax: c.Argmax, Terms: c.Terms,
			DQ: maxsimtest.NewGradient(q, maxsim.F32), DD: maxsimtest.NewGradient(d, maxsim.F32)}
		name := fmt.Sprintf("%dx%d/%dx%d", s.nq, s.lq, s.nd, s.ld)
		b.Run(name+"/forward", func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, be.Score(context.Background(), c))
			}
		})
		for _, normalize := range []bool{false, true} {
			g.Normalize = normalize
			b.Run(fmt.Sprintf("%s/backward/normalize=%v", name, normalize), func(b *testing.B) {
				for b.Loop() {
					require.NoError(b, be.Gradients(context.Background(), g))
				}
			})
		}
	}
}

// BenchmarkHead is one thread: hidden states of 768 dimensions to 128, and then scores.
func BenchmarkHead(b *testing.B) {
	be, err := maxsim.Select("")
	require.NoError(b, err)
	peak := roofline.FMAs(16)
	const hidden, dim = 768, 128
	q, _ := benchCase{lq: 32, docs: 1, lo: 1, hi: 1, dim: dim}.batches(maxsim.F32)
	_, d := benchCase{lq: 1, docs: 32, lo: 256, hi: 256, dim: hidden}.batches(maxsim.F32)
	rng := maxsimtest.Rand(1)
	c := &maxsim.HeadCall{Q: q, D: d, Terms: maxsim.Terms{Threads: 1, Normalize: true}, Scores: make([]float32, d.Len()),
		Head: maxsim.Head{Weights: maxsim.Float32(maxsimtest.Normal(rng, hidden*dim), hidden), Bias: maxsimtest.Normal(rng, dim)}}
	for b.Loop() {
		require.NoError(b, maxsim.ScoreHead(context.Background(), be, c))
	}
	perToken := b.Elapsed().Seconds() / float64(b.N) / float64(d.Tokens.Rows())
	b.ReportMetric(perToken*1e9, "ns/token")
	b.ReportMetric(2*float64(hidden*dim+q.Tokens.Rows()*dim)/perToken/peak, "fma/peak")
}

// BenchmarkLong is one document of 100,000 tokens.
func BenchmarkLong(b *testing.B) {
	be, err := maxsim.Select("")
	require.NoError(b, err)
	q, d := benchCase{lq: 32, docs: 1, lo: 100000, hi: 100000, dim: 128}.batches(maxsim.F32)
	c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})
	for _, threads := range []int{1, 2, 4} {
		c.Threads = threads
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, be.Score(context.Background(), c))
			}
		})
	}
}
