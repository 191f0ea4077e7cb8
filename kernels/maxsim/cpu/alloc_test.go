//go:build !race

package cpu_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// TestNoAllocations: once warm, nothing allocates on one thread. (The race detector
// makes pools forget on purpose.)
func TestNoAllocations(t *testing.T) {
	ctx := context.Background()
	rng := maxsimtest.Rand(1)
	for _, name := range maxsim.Backends() {
		b, err := maxsim.Select(name)
		require.NoError(t, err)
		for _, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16, maxsim.I8} {
			side := maxsimtest.Side{Type: kind, Lengths: []int{50, 5}, Masked: 0.1}
			q := side.Batch(rng, 48)
			side.Lengths = []int{5, 70, 0, 3}
			d := side.Batch(rng, 48)
			h, err := b.Prepare(ctx, d)
			require.NoError(t, err)
			for _, p := range []maxsim.Pairs{maxsim.All(), maxsim.OwnDocuments(2), maxsim.Listed([]int32{1, 0}, []int32{3, 1})} {
				c := maxsimtest.NewCall(q, d, p, maxsim.Terms{Threads: 1, Normalize: true})
				held := *c
				held.D = h
				g := &maxsim.GradCall{Q: q, D: d, Pairs: p, Terms: c.Terms, Argmax: c.Argmax,
					DQ: maxsimtest.NewGradient(q, maxsim.F32), DD: maxsimtest.NewGradient(d, maxsim.BF16)}
				require.Zero(t, testing.AllocsPerRun(5, func() {
					for _, err := range [...]error{b.Score(ctx, c), b.Score(ctx, &held), b.Gradients(ctx, g)} {
						if err != nil {
							t.Error(err)
						}
					}
				}), "%s, %s", name, kind)
			}
		}
	}
}
