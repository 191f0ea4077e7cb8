package main

import (
	"syscall"
	"unsafe"
)

const (
	largePage         = 2 << 20
	maxSmallPageBytes = 4 << 20 // smaller arrays are fast enough with pages of 4 KiB
	adviseHuge        = 14      // MADV_HUGEPAGE
)

// useLargePages asks Linux for large pages within an array that is about to be written. It may be
// new memory, whose 4 KiB pages would take longer to map than to fill. This is only advice: errors
// are ignored.
func useLargePages(p unsafe.Pointer, bytes int) {
	if bytes < maxSmallPageBytes {
		return
	}
	skip := int(-uintptr(p) % largePage) // bytes before the first large page
	if n := (bytes - skip) / largePage * largePage; n > 0 {
		_ = syscall.Madvise(unsafe.Slice((*byte)(unsafe.Add(p, skip)), n), adviseHuge)
	}
}
