package drivertest

import "golang.org/x/sys/unix"

// threadID is the number of the thread that calls.
func threadID() int { return unix.Gettid() }

// mapGuarded takes memory that begins at a multiple of 256. Behind it, but for what is left of 256
// bytes, no byte may be touched. free gives it back.
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
