//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"io/fs"
	"os"
	"syscall"
)

// lock takes the lock of an open file or folder, until it is closed.
func lock(f *os.File) int {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return held
	case syscall.EWOULDBLOCK:
		return busy
	}
	return unknown
}

// keepOwner gives a new file the owner of the one that it replaces, as far as
// that is allowed.
func keepOwner(f *os.File, there fs.FileInfo) {
	if s, ok := there.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}
