//go:build unix

package maxsimtest

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// TruncatedFile returns documents of 128 rows of float32 in a mapped file that has been truncated to
// zero bytes, so that reading them is a fault. It skips the test where faults have no address,
// as in an emulator.
func TruncatedFile(t *testing.T, rows, dim int) *maxsim.Batch {
	t.Helper()
	path, size := filepath.Join(t.TempDir(), "values"), 4*dim*rows
	require.NoError(t, os.WriteFile(path, make([]byte, size), 0o666))
	f, err := os.Open(path)
	require.NoError(t, err)
	m, err := files.Map(f, int64(size))
	require.NoError(t, f.Close())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.NoError(t, os.Truncate(path, 0))
	values := unsafe.Slice((*float32)(unsafe.Pointer(&m.Data[0])), dim*rows)
	if !addressed(values) {
		t.Skip("faults have no address here, as in an emulator")
	}
	return maxsim.Padded(maxsim.Float32(values, dim), 128)
}

// addressed reads the unmapped values, and reports whether the fault has an address.
func addressed(values []float32) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { _, ok = recover().(interface{ Addr() uintptr }) }()
	return values[0] > 0
}
