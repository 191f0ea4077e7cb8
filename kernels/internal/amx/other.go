//go:build (amd64 && !linux) || !amd64 || purego

package amx

// Supported reports false: this build cannot ask for AMX.
func Supported() bool { return false }

// SupportedHalves reports the same of Halves.
func SupportedHalves() bool { return false }
