//go:build !amd64 || purego

package avx2

// Supported reports false: the functions of this package are left out of this build.
func Supported() bool { return false }
