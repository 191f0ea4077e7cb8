package storage

import (
	"os"
	"syscall"
	"unsafe"
)

// willNeed begins to read the pages of a mapping that are not in memory. It is advice: a reader gets the same bytes
// if the system ignores it.
func willNeed(s memorySpan) {
	s = s.inPages()
	for ; s.lo < s.hi; s.lo += willNeedMost {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.lo, min(s.hi-s.lo, willNeedMost), syscall.MADV_WILLNEED)
	}
}

// willNeedMost bounds a range: of a larger one most systems read only this much.
const willNeedMost = 128 << 10

// isMissing reports whether a page of a mapping is not in memory. It reports false for a file that the process may
// not write, since the system does not tell.
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

// majorFaults counts how often threads of this process have waited for a page of a file.
func majorFaults() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Majflt)
}
