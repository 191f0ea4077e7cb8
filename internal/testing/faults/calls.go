//go:build linux && (amd64 || arm64)

package faults

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Op is the kind of a call.
type Op string

// The kinds of calls. Those up to Chown change files; the others may fail too.
const (
	Write    Op = "write"
	Truncate Op = "truncate"
	Allocate Op = "allocate"
	Sync     Op = "sync" // fsync, fdatasync, also of a folder
	Create   Op = "create"
	Rename   Op = "rename"
	Link     Op = "link"
	Unlink   Op = "unlink"
	Mkdir    Op = "mkdir"
	Rmdir    Op = "rmdir"
	Chmod    Op = "chmod"
	Chown    Op = "chown"

	Open   Op = "open" // of an existing file
	Lock   Op = "lock"
	Unlock Op = "unlock"
	Map    Op = "map"

	// Print is a write to standard output. It has no number, and the action for it is
	// ignored.
	Print Op = "print"
)

// Node identifies a file or folder independently of its path.
type Node struct{ Dev, Ino uint64 }

// Call is a system call before it is performed.
type Call struct {
	N    int // from 1, or 0 for Print
	Op   Op
	Path string // absolute. The path of an open file is the kernel's, with " (deleted)" after removal
	To   string // the new path of Rename and Link
	Node Node   // of an open file
	// Offset and Size are the range of a Write, also if it is written at the file's
	// position. Size is the new size of a Truncate.
	Offset, Size int64
	// Data holds the written bytes of a Print, and of a Write if the run records.
	Data []byte

	tid int
	req notification
}

func (c *Call) String() string {
	s := fmt.Sprintf("%d %s %s", c.N, c.Op, c.Path)
	switch c.Op {
	case Write:
		s += fmt.Sprintf(" [%d,+%d]", c.Offset, c.Size)
	case Truncate:
		s += fmt.Sprintf(" to %d", c.Size)
	case Rename, Link:
		s += " to " + c.To
	}
	return s
}

// Action is the decision about a call.
type Action struct {
	kind  kind
	errno syscall.Errno
	bytes int
	sig   syscall.Signal
}

type kind int

const (
	pass kind = iota
	killBefore
	killAfter
	tear
	fail
	interrupt
)

// Pass lets the call be performed.
func Pass() Action { return Action{} }

// KillBefore kills the process before the call is performed.
func KillBefore() Action { return Action{kind: killBefore} }

// KillAfter kills the process directly after the call is performed.
func KillAfter() Action { return Action{kind: killAfter} }

// Tear writes the first n bytes of a write and kills the process. For other calls it is
// KillBefore.
func Tear(n int) Action { return Action{kind: tear, bytes: n} }

// Fail makes the call fail without effect.
func Fail(errno syscall.Errno) Action { return Action{kind: fail, errno: errno} }

// Signal sends a signal and lets the call be performed.
func Signal(sig syscall.Signal) Action { return Action{kind: interrupt, sig: sig} }

// shape is the layout of a call's arguments.
type shape int

const (
	onFD        shape = iota // fd first
	onPath                   // path first
	atPath                   // folder fd, path
	twoPaths                 // path, path
	atPaths                  // folder fd, path, folder fd, path
	unsupported              // the run ends with an error
)

// spec is a call that is intercepted.
type spec struct {
	nr    uint32
	op    Op
	shape shape
}

// specs are the intercepted calls. legacySpecs exist only on amd64.
var specs = append([]spec{
	{unix.SYS_WRITE, Write, onFD},
	{unix.SYS_PWRITE64, Write, onFD},
	{unix.SYS_FTRUNCATE, Truncate, onFD},
	{unix.SYS_FALLOCATE, Allocate, onFD},
	{unix.SYS_FSYNC, Sync, onFD},
	{unix.SYS_FDATASYNC, Sync, onFD},
	{unix.SYS_FCHMOD, Chmod, onFD},
	{unix.SYS_FCHMODAT, Chmod, atPath},
	{unix.SYS_FCHOWN, Chown, onFD},
	{unix.SYS_FCHOWNAT, Chown, atPath},
	{unix.SYS_OPENAT, Open, atPath},
	{unix.SYS_RENAMEAT, Rename, atPaths},
	{unix.SYS_RENAMEAT2, Rename, atPaths},
	{unix.SYS_LINKAT, Link, atPaths},
	{unix.SYS_UNLINKAT, Unlink, atPath},
	{unix.SYS_MKDIRAT, Mkdir, atPath},
	{unix.SYS_FLOCK, Lock, onFD},
	{unix.SYS_MMAP, Map, onFD},

	{unix.SYS_WRITEV, Write, unsupported},
	{unix.SYS_PWRITEV, Write, unsupported},
	{unix.SYS_PWRITEV2, Write, unsupported},
	{unix.SYS_SYNC_FILE_RANGE, Sync, unsupported},
	{unix.SYS_TRUNCATE, Truncate, unsupported},
	{unix.SYS_SYMLINKAT, Link, unsupported},
}, legacySpecs...)

// refused calls fail at once, so that the program uses plain writes instead.
var refused = map[uint32]syscall.Errno{
	unix.SYS_COPY_FILE_RANGE: unix.ENOSYS,
	unix.SYS_SENDFILE:        unix.EINVAL,
	unix.SYS_SPLICE:          unix.EINVAL,
	unix.SYS_IO_URING_SETUP:  unix.ENOSYS,
	unix.SYS_OPENAT2:         unix.ENOSYS,
}
