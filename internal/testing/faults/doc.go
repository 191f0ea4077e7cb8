// Package faults lets tests decide what becomes of each system call with which
// a child process changes files: it is let through, fails with an errno, is
// carried out in part, or is the last that happens before the process is
// killed.
//
//	[Available]   whether the kernel lets it
//	[Start]       starts a process; each of its [Call] goes to a function, which answers with an [Action]
//	[Run.Wait]    waits for its end
//
// The calls of all threads are numbered in the order in which they come, and
// only one is in flight at a time. Underneath is seccomp's user notification: the
// kernel stops the calling thread and asks this process. The filter is put on
// a thread of this process that does nothing but start the child, which
// inherits it, so that any program can be a child as it is.
//
// Linux 5.19 or later on amd64 and arm64; elsewhere the package is empty.
package faults
