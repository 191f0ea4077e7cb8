//go:build unix

package folder

import (
	"os"
	"strconv"
	"syscall"
)

// Device names the file system that a folder lies on: a folder where another one has been
// mounted, or no longer is, has another name. Links are not followed. The name holds as long as
// the file system stays mounted. "" means that the system does not say.
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
