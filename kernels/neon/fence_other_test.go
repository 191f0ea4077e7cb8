//go:build arm64 && !purego && !linux

package neon

import "testing"

// fenced returns n zero values.
func fenced[T any](t testing.TB, n int, _ bool) []T {
	t.Helper()
	return make([]T, n)
}
