//go:build linux

package faults

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// legacySpecs are older calls, which calls with a folder descriptor have replaced.
var legacySpecs = []spec{
	{unix.SYS_OPEN, Open, onPath},
	{unix.SYS_CREAT, Create, onPath},
	{unix.SYS_RENAME, Rename, twoPaths},
	{unix.SYS_LINK, Link, twoPaths},
	{unix.SYS_UNLINK, Unlink, onPath},
	{unix.SYS_RMDIR, Rmdir, onPath},
	{unix.SYS_MKDIR, Mkdir, onPath},
	{unix.SYS_CHMOD, Chmod, onPath},
	{unix.SYS_CHOWN, Chown, onPath},
}
