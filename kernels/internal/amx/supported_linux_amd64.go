//go:build !purego

package amx

import (
	"golang.org/x/sys/cpu"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels/internal/avx512"
)

// Supported reports whether the processor and the operating system support the
// functions of this package.
func Supported() bool {
	return cpu.X86.HasAVX512VBMI && avx512.Supported() && floats.AMXAllowed()
}

// SupportedHalves reports whether they support Halves.
func SupportedHalves() bool { return Supported() && cpu.X86.HasAMXBF16 }
