package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// OpenFile is [os.OpenFile]. Also on Windows the open file can be renamed and removed.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	return OpenFileAs(path, path, flag, perm)
}

// OpenFileAs is OpenFile for a file that will be renamed to newName: Name returns it already.
func OpenFileAs(path, newName string, flag int, perm os.FileMode) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	access := uint32(windows.GENERIC_READ)
	switch {
	case flag&os.O_RDWR != 0:
		access |= windows.GENERIC_WRITE
	case flag&os.O_WRONLY != 0:
		access = windows.GENERIC_WRITE
	}
	disposition := uint32(windows.OPEN_EXISTING)
	switch {
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		disposition = windows.CREATE_NEW
	case flag&os.O_CREATE != 0:
		disposition = windows.OPEN_ALWAYS
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	attributes := uint32(windows.FILE_ATTRIBUTE_NORMAL)
	if perm&0o200 == 0 && flag&os.O_CREATE != 0 {
		attributes = windows.FILE_ATTRIBUTE_READONLY
	}
	if access == windows.GENERIC_READ { // folders too
		attributes |= windows.FILE_FLAG_BACKUP_SEMANTICS
	}
	var h windows.Handle
	err = retryWhileBusy(func() (err error) {
		h, err = windows.CreateFile(name, access, share, nil, disposition, attributes, 0)
		return err
	}, windows.ERROR_SHARING_VIOLATION)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(h), newName)
	if flag&os.O_TRUNC != 0 {
		if err := f.Truncate(0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// maxRetryTime is how long an operation is repeated that another program prevents for a moment, such as
// a virus scanner, a search, or a program that renames the file.
const maxRetryTime = time.Second

// retryWhileBusy repeats try for a while, as long as it fails with one of the errors in busy.
func retryWhileBusy(try func() error, busy ...error) error {
	for deadline := time.Now().Add(maxRetryTime); ; time.Sleep(10 * time.Millisecond) {
		err := try()
		isBusy := slices.ContainsFunc(busy, func(b error) bool { return errors.Is(err, b) })
		if !isBusy || time.Now().After(deadline) {
			return err
		}
	}
}

// Rename is [os.Rename]. On Windows it waits a moment for programs that read the file, such as virus
// scanners and searches.
func Rename(from, to string) error {
	return retryWhileBusy(func() error { return os.Rename(from, to) },
		windows.ERROR_SHARING_VIOLATION, windows.ERROR_ACCESS_DENIED)
}

// Remove is [os.Remove]. On Windows a mapped file stays under another name.
func Remove(path string) error {
	renamed := path + ".gone.tmp"
	_ = os.Remove(renamed)
	if err := os.Rename(path, renamed); err != nil {
		return os.Remove(path)
	}
	_ = os.Remove(renamed)
	return nil
}

// RenameNew renames a file to a name that does not exist, if the system has a call for that.
func RenameNew(from, to string) error {
	a, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	b, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	err = retryWhileBusy(func() error { return windows.MoveFileEx(a, b, 0) }, windows.ERROR_SHARING_VIOLATION)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// The lock covers the second-to-last byte that a file could have. No file has it, so the lock does
// not prevent reads. The lock of bbolt covers the last one.
const lockedLow, lockedHigh = 1<<32 - 2, 1<<32 - 1

// LockShared and LockExclusive lock a file until it is closed. They do not wait.
func LockShared(f *os.File) error { return lock(f, 0) }

// LockExclusive is described at LockShared.
func LockExclusive(f *os.File) error { return lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

func lock(f *os.File, how uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
		&windows.Overlapped{Offset: lockedLow, OffsetHigh: lockedHigh})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}

// LockLikeFilelock acquires the lock that the Python package filelock uses, on the first byte. It does not
// wait.
func LockLikeFilelock(f *os.File) error {
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}

// Unlock releases a lock before the file is closed.
func Unlock(f *os.File) {
	_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0,
		&windows.Overlapped{Offset: lockedLow, OffsetHigh: lockedHigh})
}

// Duplicate calls use with a second handle of an open file. Locks of that handle are separate from
// the lock of the file.
func Duplicate(f *os.File, use func(*os.File) error) error {
	var h windows.Handle
	self := windows.CurrentProcess()
	err := windows.DuplicateHandle(self, windows.Handle(f.Fd()), self, &h, 0, false, windows.DUPLICATE_SAME_ACCESS)
	if err != nil {
		return os.NewSyscallError("DuplicateHandle", err)
	}
	return use(os.NewFile(uintptr(h), f.Name()))
}

func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	// The view keeps the mapping.
	defer windows.CloseHandle(h)
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, err
	}
	// The memory does not belong to Go. The conversion through a pointer avoids a false warning of
	// vet.
	data := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
	return data, func() error { return windows.UnmapViewOfFile(addr) }, nil
}

const nonBlocking = 0 // Windows has no pipes in the file system

func copyOwner(*os.File, fs.FileInfo) {}
