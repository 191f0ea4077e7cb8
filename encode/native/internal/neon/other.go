//go:build !arm64 || purego

package neon

// Supported reports false: the functions of this package are left out of this build.
func Supported() bool { return false }
