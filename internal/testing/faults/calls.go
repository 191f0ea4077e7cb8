//go:build linux && (amd64 || arm64)

package faults

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Op is what a call does.
type Op string

// The kinds of calls. Those up to Chown change files; the others may fail too.
const (
	Write    Op = "write"
	Truncate Op = "truncate"
	Allocate Op = "allocate"
	Sync     Op = "sync" // fsync, fdatasync; of a folder, too
	Create   Op = "create"
	Rename   Op = "rename"
	Link     Op = "link"
	Unlink   Op = "unlink"
	Mkdir    Op = "mkdir"
	Rmdir    Op = "rmdir"
	Chmod    Op = "chmod"
	Chown    Op = "chown"

	Open   Op = "open" // of what is there
	Lock   Op = "lock"
	Unlock Op = "unlock"
	Map    Op = "map"

	// Print is a write to standard output. It has no number, and what it is
	// answered with is not looked at.
	Print Op = "print"
)

// Node names a file or folder whatever its path.
type Node struct{ Dev, Ino uint64 }

// Call is a system call about to happen.
type Call struct {
	N    int // from 1; 0 for Print
	Op   Op
	Path string // absolute; of an open file as the kernel tells it, with " (deleted)" when that name is gone
	To   string // of Rename and Link: the new path
	Node Node   // of an open file
	// Offset and Size: of Write, where and how much; Size is the new size of
	// Truncate. The offset of a write that goes where the file stands is found
	// out.
	Offset, Size int64
	// Data is what is written, if the run records; of Print always.
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

// Action is what becomes of a call.
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

// Pass lets the call happen.
func Pass() Action { return Action{} }

// KillBefore kills the process before the call has happened.
func KillBefore() Action { return Action{kind: killBefore} }

// KillAfter kills the process when the call has happened and nothing more has.
func KillAfter() Action { return Action{kind: killAfter} }

// Tear lets the first n bytes of a write happen and kills the process. It is
// KillBefore for other calls.
func Tear(n int) Action { return Action{kind: tear, bytes: n} }

// Fail lets the call fail without effect.
func Fail(errno syscall.Errno) Action { return Action{kind: fail, errno: errno} }

// Signal sends a signal and lets the call happen.
func Signal(sig syscall.Signal) Action { return Action{kind: interrupt, sig: sig} }

// shape is how the arguments of a call are laid out.
type shape int

const (
	onFD     shape = iota // fd first
	onPath                // path first
	atPath                // folder fd, path
	twoPaths              // path, path
	atPaths               // folder fd, path, folder fd, path
	unknown               // not understood: the run ends with an error
)

// spec is a call that is stopped.
type spec struct {
	nr    uint32
	op    Op
	shape shape
}

// specs of both architectures; legacySpecs are those that only amd64 has.
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

	{unix.SYS_WRITEV, Write, unknown},
	{unix.SYS_PWRITEV, Write, unknown},
	{unix.SYS_PWRITEV2, Write, unknown},
	{unix.SYS_SYNC_FILE_RANGE, Sync, unknown},
	{unix.SYS_TRUNCATE, Truncate, unknown},
	{unix.SYS_SYMLINKAT, Link, unknown},
}, legacySpecs...)

// refused calls fail at once, so that the program goes on with plain writes.
var refused = map[uint32]syscall.Errno{
	unix.SYS_COPY_FILE_RANGE: unix.ENOSYS,
	unix.SYS_SENDFILE:        unix.EINVAL,
	unix.SYS_SPLICE:          unix.EINVAL,
	unix.SYS_IO_URING_SETUP:  unix.ENOSYS,
	unix.SYS_OPENAT2:         unix.ENOSYS,
}
