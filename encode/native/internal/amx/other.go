//go:build !amd64 || purego

package amx

// Supported reports false: this build has no assembler for AMX.
func Supported() bool { return false }
