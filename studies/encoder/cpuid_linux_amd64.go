package main

import (
	"fmt"
	"runtime"
	"syscall"
)

const archSetCPUID = 0x1012

// hidden calls f on a thread whose CPUID faults, for hide/mask.c to answer, as do the
// threads that f starts.
func hidden(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archSetCPUID, 0, 0); e != 0 {
		return fmt.Errorf("hide CPUID: %w", e)
	}
	defer syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archSetCPUID, 1, 0)
	return f()
}

// used is the processor time of the process in seconds.
func used() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
