//go:build unix

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenFile is [os.OpenFile]. Also on Windows the open file can be renamed and removed.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, perm)
}

// OpenFileAs is OpenFile for a file that will be renamed to name: Name returns it already.
func OpenFileAs(path, name string, flag int, perm os.FileMode) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC, uint32(perm.Perm()))
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Rename is [os.Rename]. On Windows it waits a moment for programs that read the file, such as virus
// scanners and searches.
func Rename(from, to string) error { return os.Rename(from, to) }

// Remove is [os.Remove]. On Windows a mapped file stays under another name.
func Remove(path string) error { return os.Remove(path) }

// RenameNew renames a file to a name that does not exist, if the system has a call for that.
func RenameNew(_, _ string) error { return errors.ErrUnsupported }

// LockShared and LockExclusive lock a file until it is closed. They do not wait.
func LockShared(f *os.File) error    { return lockFile(f, unix.LOCK_SH|unix.LOCK_NB) }
func LockExclusive(f *os.File) error { return lockFile(f, unix.LOCK_EX|unix.LOCK_NB) }

// LockLikeFilelock acquires the lock that the Python package filelock uses. It does not wait.
func LockLikeFilelock(f *os.File) error { return LockExclusive(f) }

// Unlock releases a lock before the file is closed.
func Unlock(f *os.File) { _ = lockFile(f, unix.LOCK_UN) }

// lockFile calls flock, but not while Duplicate changes a lock.
func lockFile(f *os.File, how int) error {
	lockAttempts.Lock()
	defer lockAttempts.Unlock()
	return tryFlock(f, how)
}

// tryFlock calls flock, and repeats it after signals.
func tryFlock(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%w: %w", ErrLocked, err)
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// lockAttempts is held during each attempt to lock. Attempts never wait.
var lockAttempts sync.Mutex

// Duplicate calls use with a second handle of an open file that is locked exclusively. Both handles
// share the lock, and use may turn it into a shared one. Duplicate makes it exclusive again before
// anything else in this process can acquire it.
func Duplicate(f *os.File, use func(*os.File) error) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	lockAttempts.Lock()
	defer lockAttempts.Unlock()
	err = use(os.NewFile(uintptr(fd), f.Name()))
	return errors.Join(err, tryFlock(f, unix.LOCK_EX|unix.LOCK_NB))
}

func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	return data, func() error { return unix.Munmap(data) }, err
}

const nonBlocking = syscall.O_NONBLOCK

// copyOwner gives a new file the owner of the file that it replaces, as far as that is allowed.
func copyOwner(f *os.File, replaced fs.FileInfo) {
	if s, ok := replaced.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}
