//go:build unix

package files

import "syscall"

const nonBlocking = syscall.O_NONBLOCK
