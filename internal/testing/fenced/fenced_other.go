//go:build !linux

package fenced

import "testing"

// Slice returns n zero values.
func Slice[T any](t testing.TB, n int) []T {
	t.Helper()
	return make([]T, n)
}

// SliceAt returns n zero values.
func SliceAt[T any](t testing.TB, n int, _ bool) []T {
	t.Helper()
	return make([]T, n)
}
