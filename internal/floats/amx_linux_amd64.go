package floats

import (
	"sync"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

const (
	archReqXcompPerm = 0x1023
	xfeatureTileData = 18
)

// AMXAllowed reports whether the processor has AMX with int8 products and the operating system lets
// this process use it. It requests the permission once.
var AMXAllowed = sync.OnceValue(func() bool {
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXInt8 {
		return false
	}
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXcompPerm, xfeatureTileData, 0)
	return errno == 0
})
