package storage

import (
	"os"

	"golang.org/x/sys/windows"

	"github.com/plaid-ir/plaid/internal/files"
)

// linkCount returns the number of names (hard links) of a file.
func linkCount(path string, _ os.FileInfo) int {
	f, err := files.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return 1
	}
	defer f.Close()
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 1
	}
	return int(info.NumberOfLinks)
}

// fileOwner returns false: on Windows a new file inherits the permissions of its folder.
func fileOwner(os.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

// fileIdentity returns the numbers by which the system identifies an open file, or zeros.
func fileIdentity(f *os.File, _ os.FileInfo) (device, inode uint64) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 0, 0
	}
	return uint64(info.VolumeSerialNumber), uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow)
}
