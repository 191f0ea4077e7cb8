//go:build !arm64 || purego

package neon

// Supported reports false: the functions of this package are not built.
func Supported() bool { return false }
