package storage

import (
	"os"
	"syscall"
	"unsafe"
)

// willNeed advises the system to read the pages of a mapping that are not in memory. Readers do not
// depend on its success.
func willNeed(s memorySpan) {
	for p := range s.inPages().subspans {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, p.lo, p.hi-p.lo, syscall.MADV_WILLNEED)
	}
}

// subspans yields the span in spans of at most willNeedMost bytes.
func (s memorySpan) subspans(yield func(memorySpan) bool) {
	for ; s.lo < s.hi; s.lo += maxWillNeedBytes {
		if !yield(memorySpan{s.lo, min(s.hi, s.lo+maxWillNeedBytes)}) {
			return
		}
	}
}

// maxWillNeedBytes is the number of bytes that the system reads of a larger range, unless its disk is
// configured for more.
const maxWillNeedBytes = 128 << 10

// isMissing reports whether a page of a mapping is not in memory. For a file that the process neither
// owns nor may write, the system hides that, and the result is false.
func isMissing(s memorySpan) bool {
	s = s.inPages()
	var pages [256]byte
	size := uintptr(os.Getpagesize())
	for ; s.lo < s.hi; s.lo += uintptr(len(pages)) * size {
		n := min(s.hi-s.lo, uintptr(len(pages))*size)
		if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, s.lo, n, uintptr(unsafe.Pointer(&pages))); errno != 0 {
			return false
		}
		for _, p := range pages[:(n+size-1)/size] {
			if p&1 == 0 {
				return true
			}
		}
	}
	return false
}

// inPages extends a span to the beginning of its first page.
func (s memorySpan) inPages() memorySpan {
	return memorySpan{s.lo &^ (uintptr(os.Getpagesize()) - 1), s.hi}
}

// majorFaultCount returns how often threads of this process have waited for the disk to read a page.
func majorFaultCount() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Majflt)
}
