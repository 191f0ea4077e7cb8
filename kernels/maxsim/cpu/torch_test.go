package cpu_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// BenchmarkTorch has the shapes of eval/peers/dense_cpu.py, on one thread: a forward pass, one
// with argmaxima, and one with the gradients of both sides. best-ms is the fastest call, as
// there.
func BenchmarkTorch(b *testing.B) {
	be, err := maxsim.Select("")
	require.NoError(b, err)
	ctx := context.Background()
	for _, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16, maxsim.F16} {
		for _, s := range []struct{ nq, lq, nd, ld int }{
			{1, 32, 1000, 180}, {16, 32, 16, 180}, {32, 32, 32, 180}, {16, 32, 16, 1030},
		} {
			rng := maxsimtest.Rand(1)
			side := func(n, l int) *maxsim.Batch {
				one := maxsimtest.Side{Type: kind, Lengths: []int{n * l}, Unit: true}.Batch(rng, 128)
				return maxsim.Padded(one.Tokens, l)
			}
			q, d := side(s.nq, s.lq), side(s.nd, s.ld)
			c := maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{Threads: 1})
			scores := *c
			scores.Argmax = nil
			g := &maxsim.GradCall{Q: q, D: d, Argmax: c.Argmax, Terms: c.Terms,
				DQ: maxsimtest.NewGradient(q, kind), DD: maxsimtest.NewGradient(d, kind)}
			name := fmt.Sprintf("%s/%dx%d/%dx%d", kind, s.nq, s.lq, s.nd, s.ld)
			for _, run := range []struct {
				name string
				call *maxsim.Call
				back bool
			}{{"forward", &scores, false}, {"argmax", c, false}, {"both", c, true}} {
				b.Run(name+"/"+run.name, func(b *testing.B) {
					best := math.Inf(1)
					for b.Loop() {
						start := time.Now()
						require.NoError(b, be.Score(ctx, run.call))
						if run.back {
							require.NoError(b, be.Gradients(ctx, g))
						}
						best = min(best, time.Since(start).Seconds())
					}
					b.ReportMetric(1e3*best, "best-ms")
				})
			}
		}
	}
}
