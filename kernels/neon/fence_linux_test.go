//go:build arm64 && !purego

package neon

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// fenced returns n zero values between unmapped pages, so that reading or
// writing beyond them faults: at the end of their pages, or at the start.
func fenced[T any](t testing.TB, n int, atEnd bool) []T {
	t.Helper()
	var zero T
	size, page := n*int(unsafe.Sizeof(zero)), syscall.Getpagesize()
	pages := (size + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, pages+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(m)) })
	require.NoError(t, syscall.Mprotect(m[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(m[page+pages:], syscall.PROT_NONE))
	if n == 0 {
		return nil
	}
	first := page
	if atEnd {
		first += pages - size
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&m[first])), n)
}
