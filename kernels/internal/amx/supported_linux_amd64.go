//go:build !purego

package amx

import (
	"sync"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/plaid-ir/plaid/kernels/internal/avx512"
)

const (
	archReqXcompPerm = 0x1023
	xfeatureTileData = 18
)

// Supported reports whether the processor has AMX with 8-bit products and the
// operating system lets this process use it, which is asked for once.
var Supported = sync.OnceValue(func() bool {
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXInt8 || !cpu.X86.HasAVX512VBMI || !avx512.SupportedBytes() {
		return false
	}
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXcompPerm, xfeatureTileData, 0)
	return errno == 0
})
