package storage

import (
	"os"
	"syscall"
	"unsafe"
)

// willNeed begins to read the pages of a mapping that are not in memory. It is advice:
// a reader does not depend on its success.
func willNeed(s memorySpan) {
	for p := range s.inPages().pieces {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, p.lo, p.hi-p.lo, syscall.MADV_WILLNEED)
	}
}

// pieces cuts a span into those of at most willNeedMost.
func (s memorySpan) pieces(yield func(memorySpan) bool) {
	for ; s.lo < s.hi; s.lo += willNeedMost {
		if !yield(memorySpan{s.lo, min(s.hi, s.lo+willNeedMost)}) {
			return
		}
	}
}

// willNeedMost is how much the system reads of a larger range, unless its disk is set up for more.
const willNeedMost = 128 << 10

// isMissing reports whether a page of a mapping is not in memory. The system does not tell it of a file that the
// process neither owns nor may write; then it is false.
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
