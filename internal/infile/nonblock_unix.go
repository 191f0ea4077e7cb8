//go:build unix

package infile

import "syscall"

const nonBlocking = syscall.O_NONBLOCK
