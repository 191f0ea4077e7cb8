// Package faults lets tests decide about each system call with which
// a child process changes files: it is performed, fails with an errno, is
// performed in part, or is the last call before the process is
// killed.
//
//	[Available]   whether the kernel supports it
//	[Start]       starts a process, and passes each [Call] to a function that returns an [Action]
//	[Run.Wait]    waits for its end
//
// The calls of all threads are numbered in the order of their arrival, and
// only one is performed at a time. It uses seccomp's user notification: the
// kernel stops the calling thread and notifies this process. The filter is installed on
// a thread of this process that only starts the child. The child
// inherits it, so that any program can be a child without changes.
//
// Linux 5.19 or later on amd64 and arm64; elsewhere the package is empty.
package faults
