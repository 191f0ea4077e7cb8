package drivertest

import "golang.org/x/sys/unix"

// thread is the number of the thread that calls.
func thread() int { return unix.Gettid() }
