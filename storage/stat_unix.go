//go:build unix

package storage

import (
	"os"
	"syscall"
)

// linkCount returns the number of names (hard links) of a file.
func linkCount(_ string, info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Nlink)
	}
	return 1
}

// fileOwner returns the owner and group of a file.
func fileOwner(info os.FileInfo) (uid, gid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// fileIdentity returns the numbers by which the system identifies an open file, or zeros.
func fileIdentity(_ *os.File, info os.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino)
	}
	return 0, 0
}
