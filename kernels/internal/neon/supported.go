//go:build arm64 && !purego

package neon

import "golang.org/x/sys/cpu"

// Supported reports whether the processor has what the functions of this
// package but [Filter] and [Screen] need. Every arm64 processor has.
func Supported() bool { return true }

// SupportedBytes reports whether the processor also multiplies bytes (the
// dot product extension of ARMv8.2), for these.
func SupportedBytes() bool { return cpu.ARM64.HasASIMDDP }
