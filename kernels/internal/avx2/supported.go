//go:build amd64 && !purego

package avx2

import "golang.org/x/sys/cpu"

// Supported reports whether the processor and the operating system have AVX2 and
// fused multiply-adds.
func Supported() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }
