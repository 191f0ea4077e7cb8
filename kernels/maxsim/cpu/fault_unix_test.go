//go:build unix

package cpu_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// TestFault: a mapped file that is cut short is an error of the call, on any number of
// threads and on every tier, and the next call is right.
func TestFault(t *testing.T) {
	ctx := context.Background()
	const dim, rows = 64, 4096
	d := maxsimtest.TruncatedFile(t, rows, dim)
	q := maxsimtest.Side{Lengths: []int{32}}.Batch(maxsimtest.Rand(1), dim)
	for _, name := range maxsim.Backends() {
		b, err := maxsim.Select(name)
		require.NoError(t, err)
		for _, threads := range []int{1, 4} {
			terms := maxsim.Terms{Threads: threads}
			c := maxsimtest.NewCall(q, d, maxsim.All(), terms)
			require.ErrorIs(t, b.Score(ctx, c), maxsim.ErrFault, name)
			if held, err := b.Prepare(ctx, d); err == nil {
				c.D = held
				require.ErrorIs(t, b.Score(ctx, c), maxsim.ErrFault, name)
			} else {
				require.ErrorIs(t, err, maxsim.ErrFault, name)
			}
			g := &maxsim.GradCall{Q: q, D: d, Terms: terms, Argmax: make([]int32, len(c.Argmax)), DQ: maxsimtest.NewGradient(q, maxsim.F32)}
			require.ErrorIs(t, b.Gradients(ctx, g), maxsim.ErrFault)
		}
		own := maxsimtest.Side{Lengths: []int{40}}.Batch(maxsimtest.Rand(2), dim)
		maxsimtest.Check(t, b, maxsimtest.NewCall(q, own, maxsim.All(), maxsim.Terms{}), maxsimtest.Options{})
	}
}
