//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package files

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner of the one that it replaces, as far as
// that is allowed.
func keepOwner(f *os.File, there fs.FileInfo) {
	if s, ok := there.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}
