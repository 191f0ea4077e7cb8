//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"io/fs"
	"os"
)

func lock(*os.File) int { return unknown }

func keepOwner(*os.File, fs.FileInfo) {}
