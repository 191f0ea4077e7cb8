//go:build unix

package cpu_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/mapped"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/maxsim/maxsimtest"
)

// TestFault: a mapped file that is cut short is an error of the call, on any number of
// threads and on every tier, and the next call is right.
func TestFault(t *testing.T) {
	ctx := context.Background()
	const dim, rows = 64, 4096
	path := filepath.Join(t.TempDir(), "values")
	require.NoError(t, os.WriteFile(path, make([]byte, 4*dim*rows), 0o666))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	m, err := mapped.Map(f, 4*dim*rows)
	require.NoError(t, err)
	defer m.Close()
	values := unsafe.Slice((*float32)(unsafe.Pointer(&m.Data[0])), dim*rows)
	d := maxsim.Padded(maxsim.Float32(values, dim), 128)
	q := maxsimtest.Side{Lengths: []int{32}}.Batch(maxsimtest.Rand(1), dim)
	require.NoError(t, os.Truncate(path, 0))
	if !addressed(values) {
		t.Skip("faults have no address here, as in an emulator")
	}
	for _, name := range maxsim.Backends() {
		b, err := maxsim.Select(name)
		require.NoError(t, err)
		for _, threads := range []int{1, 4} {
			terms := maxsim.Terms{Threads: threads}
			c := maxsimtest.NewCall(q, d, maxsim.All(), terms)
			require.ErrorIs(t, b.Score(ctx, c), maxsim.ErrFault, name)
			g := &maxsim.GradCall{Q: q, D: d, Terms: terms, Argmax: make([]int32, len(c.Argmax)), DQ: maxsimtest.NewGradient(q, maxsim.F32)}
			require.ErrorIs(t, b.Gradients(ctx, g), maxsim.ErrFault)
			_, err := maxsim.Pack(ctx, b, d, threads)
			require.ErrorIs(t, err, maxsim.ErrFault)
		}
		own := maxsimtest.Side{Lengths: []int{40}}.Batch(maxsimtest.Rand(2), dim)
		maxsimtest.Check(t, b, maxsimtest.NewCall(q, own, maxsim.All(), maxsim.Terms{}), maxsimtest.Options{})
	}
}

// addressed reads what is not there, and tells whether the fault says where.
func addressed(values []float32) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { _, ok = recover().(interface{ Addr() uintptr }) }()
	return values[0] > 0
}
