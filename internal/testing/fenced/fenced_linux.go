// Package fenced gives tests of assembler memory that ends at an unmapped page.
package fenced

import (
	"syscall"
	"testing"
	"unsafe"
)

// Slice returns n zero values that end where an unmapped page begins, so that
// reading or writing past them faults.
func Slice[T any](t testing.TB, n int) []T {
	t.Helper()
	return SliceAt[T](t, n, true)
}

// SliceAt returns n zero values between unmapped pages: at the end of their own,
// or at the start.
func SliceAt[T any](t testing.TB, n int, atEnd bool) []T {
	t.Helper()
	var zero T
	size, page := n*int(unsafe.Sizeof(zero)), syscall.Getpagesize()
	pages := (size + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, pages+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	for _, fence := range [][]byte{m[:page], m[page+pages:]} {
		if err := syscall.Mprotect(fence, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { syscall.Munmap(m) })
	if n == 0 {
		return nil
	}
	first := page
	if atEnd {
		first += pages - size
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&m[first])), n)
}
