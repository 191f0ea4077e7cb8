//go:build unix

package storage

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockShared and lockExclusive take the lock that bbolt takes too, or fail at
// once with EWOULDBLOCK.
func lockShared(f *os.File) error    { return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) }
func lockExclusive(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// lock waits for the lock, until ctx ends: to write an exclusive one.
func lock(ctx context.Context, f *os.File, write bool, deadline time.Time) error {
	try := lockShared
	if write {
		try = lockExclusive
	}
	for {
		err := try(f)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return err
		case time.Now().After(deadline):
			return ErrLocked
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// lockPoll is bbolt's.
const lockPoll = 50 * time.Millisecond

// unlock gives a file's lock back. Closing is not enough after bbolt has
// panicked: the mapping that it leaves behind keeps the open file alive.
func unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// links is how many names a file has.
func links(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Nlink)
	}
	return 1
}

// owner is who owns a file.
func owner(info os.FileInfo) (uid, gid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// identity is what the system knows a file by.
func identity(info os.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino)
	}
	return 0, 0
}
