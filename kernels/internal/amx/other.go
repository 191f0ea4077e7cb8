//go:build (amd64 && !linux) || !amd64 || purego

package amx

// Supported reports false: only Linux on amd64 lets a program request AMX.
func Supported() bool { return false }

// SupportedHalves reports false, as Supported does.
func SupportedHalves() bool { return false }
