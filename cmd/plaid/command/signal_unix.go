//go:build unix

package command

import (
	"os/signal"
	"syscall"
)

// ignoreSizeLimit makes a write beyond the limit on file sizes (ulimit -f) an
// error, EFBIG, and not the end of the process.
func ignoreSizeLimit() { signal.Ignore(syscall.SIGXFSZ) }
