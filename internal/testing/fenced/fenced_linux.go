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

// SliceAt returns n zero values between two unmapped pages: directly before the second one, or,
// if atEnd is false, directly after the first.
func SliceAt[T any](t testing.TB, n int, atEnd bool) []T {
	t.Helper()
	var zero T
	size, page := n*int(unsafe.Sizeof(zero)), syscall.Getpagesize()
	pages := (size + page - 1) / page * page
	const prot, flags = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_ANON | syscall.MAP_PRIVATE
	m, err := syscall.Mmap(-1, 0, pages+2*page, prot, flags)
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
