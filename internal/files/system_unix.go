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

// OpenFile is [os.OpenFile]; on Windows the file can be renamed and removed meanwhile.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, perm)
}

// OpenFileAs is OpenFile of a file that is to be called by another name, which it will get.
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

// Rename is [os.Rename]; on Windows it waits a moment for
// programs that look at the file, as scanners and searches do.
func Rename(from, to string) error { return os.Rename(from, to) }

// Remove is [os.Remove]. On Windows a file that is mapped stays, but has another name then.
func Remove(path string) error { return os.Remove(path) }

// RenameNew renames a file to a name that no file has, where the system has a call for
// that.
func RenameNew(_, _ string) error { return errors.ErrUnsupported }

// LockShared and LockExclusive take a lock at once, until the file is closed, or fail.
func LockShared(f *os.File) error    { return lockFile(f, unix.LOCK_SH|unix.LOCK_NB) }
func LockExclusive(f *os.File) error { return lockFile(f, unix.LOCK_EX|unix.LOCK_NB) }

// LockFirst takes the lock that the Python package filelock takes, at once, or fails.
func LockFirst(f *os.File) error { return LockExclusive(f) }

// Unlock gives a lock back before the file is closed.
func Unlock(f *os.File) { _ = lockFile(f, unix.LOCK_UN) }

func lockFile(f *os.File, how int) error {
	lockAttempts.Lock()
	defer lockAttempts.Unlock()
	return tryFlock(f, how)
}

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

// lockAttempts is held while a lock is asked for, which never waits.
var lockAttempts sync.Mutex

// Duplicate gives use a second handle of an open file that is locked exclusively. One lock
// is that of both, and what use does with its handle may make it a shared one: before
// anything else of this process can ask for it, it is exclusive again.
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

// copyOwner gives a new file the owner of the one that it replaces, as far as
// that is allowed.
func copyOwner(f *os.File, there fs.FileInfo) {
	if s, ok := there.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}
