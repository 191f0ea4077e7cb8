//go:build unix

package dense

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// A mapped file that is cut short while a device reads it is an error of the call, and
// the device goes on.
func TestFault(t *testing.T) {
	const dim, rows = 64, 4 << 14
	d := maxsimtest.TruncatedFile(t, rows, dim)
	q := maxsimtest.Side{Lengths: []int{3}}.Batch(maxsimtest.Rand(1), dim)
	b := New(runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels())))
	require.ErrorIs(t, b.Score(ctx, maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})), maxsim.ErrFault)
	_, err := b.Prepare(ctx, d)
	require.ErrorIs(t, err, maxsim.ErrFault)
	own := maxsimtest.Side{Lengths: []int{4, 5}}.Batch(maxsimtest.Rand(2), dim)
	maxsimtest.Check(t, b, maxsimtest.NewCall(q, own, maxsim.All(), maxsim.Terms{}), maxsimtest.Options{})
}
