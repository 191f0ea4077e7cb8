package drivertest

import "golang.org/x/sys/unix"

// threadID returns the number of the calling thread.
func threadID() int { return unix.Gettid() }

// mapGuarded maps n bytes of memory, rounded up to a multiple of 256. A guard page follows: access
// behind the rounded end is a segmentation fault. free unmaps the memory.
func mapGuarded(n int) (b []byte, free func(), err error) {
	page := unix.Getpagesize()
	rounded := (n + 255) &^ 255
	size := (rounded + page - 1) &^ (page - 1)
	mapping, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	free = func() { _ = unix.Munmap(mapping) }
	if err := unix.Mprotect(mapping[size:], unix.PROT_NONE); err != nil {
		free()
		return nil, nil, err
	}
	return mapping[size-rounded:][:n:n], free, nil
}
