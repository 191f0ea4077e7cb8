//go:build !linux

package looptest

import "testing"

// Fenced returns n zero values.
func Fenced[T any](t testing.TB, n int) []T {
	t.Helper()
	return make([]T, n)
}
