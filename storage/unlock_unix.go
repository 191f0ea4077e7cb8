//go:build unix

package storage

import (
	"os"

	"golang.org/x/sys/unix"
)

// unlock gives a file's lock back. Closing is not enough after bbolt has
// panicked: the mapping that it leaves behind keeps the open file alive.
func unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
