package main

import (
	"syscall"
	"unsafe"
)

const (
	largePage      = 2 << 20
	mostSmallPages = 4 << 20 // bytes of an array for which pages of 4 KiB are fast enough
	adviseHuge     = 14      // MADV_HUGEPAGE
)

// useLargePages asks Linux for large pages within an array that is about to be written: it may be
// new memory, whose 4 KiB pages take longer to be mapped than to be filled. Only an advice: an error
// changes nothing.
func useLargePages(p unsafe.Pointer, bytes int) {
	if bytes < mostSmallPages {
		return
	}
	skip := int(-uintptr(p) % largePage)
	if n := (bytes - skip) / largePage * largePage; n > 0 {
		_ = syscall.Madvise(unsafe.Slice((*byte)(unsafe.Add(p, skip)), n), adviseHuge)
	}
}
