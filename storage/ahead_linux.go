package storage

import (
	"os"
	"syscall"
	"unsafe"
)

// willNeed begins to read the pages of a mapping that are not in memory. It is advice: what comes of it does not
// matter to the reader.
func willNeed(s memorySpan) {
	s = s.inPages()
	for ; s.lo < s.hi; s.lo += willNeedMost {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.lo, min(s.hi-s.lo, willNeedMost), syscall.MADV_WILLNEED)
	}
}

// willNeedMost is how much the system reads of a larger range, unless its disk is set up for more.
const willNeedMost = 128 << 10

// isMissing reports whether a page of a mapping is not in memory. Of files of others, which the process may not
// write, the system does not tell.
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

// inPages begins a span at the page of its first byte.
func (s memorySpan) inPages() memorySpan {
	return memorySpan{s.lo &^ (uintptr(os.Getpagesize()) - 1), s.hi}
}

// majorFaults is how often threads of this process have waited for a page of a file.
func majorFaults() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Majflt)
}
