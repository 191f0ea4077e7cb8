//go:build unix

package command

import (
	"os/signal"
	"syscall"
)

// ignoreSizeLimit makes a write beyond the limit on file sizes (ulimit -f) fail with EFBIG. Without
// it, a signal would end the process.
func ignoreSizeLimit() { signal.Ignore(syscall.SIGXFSZ) }
