//go:build unix

package folder

import (
	"os"
	"strconv"
	"syscall"
)

// Device names the file system that a folder is on. The name changes when another file system is
// mounted on the folder, or unmounted from it, and holds as long as the file system stays mounted.
// Links are not followed. "" means that the system does not say.
func Device(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(uint64(st.Dev), 10), nil
	}
	return "", nil
}
