//go:build amd64 && !purego

package avx512

import "golang.org/x/sys/cpu"

// Supported reports whether the processor and the operating system have what the
// functions of this package need.
func Supported() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512VNNI && x.HasAVX2 && x.HasFMA
}
