//go:build !unix && !windows

package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// OpenFile is [os.OpenFile]; on Windows the file can be renamed and removed meanwhile.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, perm)
}

// OpenFileAs is OpenFile of a file that is to be called by another name, which it will get.
func OpenFileAs(path, _ string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, perm)
}

// Rename is [os.Rename]; on Windows it waits a moment for
// programs that look at the file, as scanners and searches do.
func Rename(from, to string) error { return os.Rename(from, to) }

// Remove is [os.Remove]. On Windows a file that is mapped stays, but has another name then.
func Remove(path string) error { return os.Remove(path) }

// RenameNew renames a file to a name that no file has, where the system has a call for
// that.
func RenameNew(_, _ string) error { return errors.ErrUnsupported }

// LockShared and LockExclusive: there are no locks here.
func LockShared(*os.File) error    { return errors.ErrUnsupported }
func LockExclusive(*os.File) error { return errors.ErrUnsupported }

// Unlock has nothing to give back.
func Unlock(*os.File) {}

// Duplicate is impossible here.
func Duplicate(*os.File, func(*os.File) error) error { return errors.ErrUnsupported }

func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), data); err != nil {
		return nil, nil, err
	}
	return data, nil, nil
}

const nonBlocking = 0 // there are no pipes among the files

func keepOwner(*os.File, fs.FileInfo) {}
