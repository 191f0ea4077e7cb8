//go:build unix

package dense

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/mapped"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/maxsim/maxsimtest"
)

// A mapped file that is cut short while a device reads it is an error of the call, and
// the device goes on.
func TestFault(t *testing.T) {
	const dim, rows = 64, 4 << 14
	path := filepath.Join(t.TempDir(), "values")
	require.NoError(t, os.WriteFile(path, make([]byte, 4*dim*rows), 0o666))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	m, err := mapped.Map(f, 4*dim*rows)
	require.NoError(t, err)
	defer m.Close()
	d := maxsim.Padded(maxsim.Float32(unsafe.Slice((*float32)(unsafe.Pointer(&m.Data[0])), dim*rows), dim), 128)
	q := maxsimtest.Side{Lengths: []int{3}}.Batch(maxsimtest.Rand(1), dim)
	require.NoError(t, os.Truncate(path, 0))
	b := New(runtimetest.OpenFake(t, runtimetest.Fake(fakeKernels())))
	require.ErrorIs(t, b.Score(ctx, maxsimtest.NewCall(q, d, maxsim.All(), maxsim.Terms{})), maxsim.ErrFault)
	_, err = b.Hold(ctx, d, maxsim.HoldOptions{})
	require.ErrorIs(t, err, maxsim.ErrFault)
	own := maxsimtest.Side{Lengths: []int{4, 5}}.Batch(maxsimtest.Rand(2), dim)
	maxsimtest.Check(t, b, maxsimtest.NewCall(q, own, maxsim.All(), maxsim.Terms{}), maxsimtest.Options{})
}
