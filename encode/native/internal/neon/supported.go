//go:build arm64 && !purego

package neon

import "golang.org/x/sys/cpu"

// Supported reports whether the processor and the operating system have what
// the functions of this package need, but for [ByteProducts].
func Supported() bool {
	return true
}

// SupportedBytes reports whether the processor also multiplies bytes (the dot
// product extension of ARMv8.2), for [ByteProducts].
func SupportedBytes() bool { return cpu.ARM64.HasASIMDDP }
