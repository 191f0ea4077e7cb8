//go:build !linux

package looptest

import "testing"

// fenced returns n zero values.
func fenced[T any](t testing.TB, n int) []T {
	t.Helper()
	return make([]T, n)
}
