//go:build unix

package store

import "golang.org/x/sys/unix"

// freeBytes returns the bytes that an unprivileged process can still write to a folder.
func freeBytes(dir string) (bytes uint64, known bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return uint64(st.Bavail) * uint64(st.Bsize), true //nolint:unconvert // other systems have other types
}
