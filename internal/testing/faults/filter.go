//go:build linux && (amd64 || arm64)

package faults

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, the filter's input.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16 // low half of the first argument, on machines with the low byte first
)

// filterProgram returns the program that intercepts the calls of specs, fails refused calls, and lets all others
// pass.
func filterProgram() []unix.SockFilter {
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	load := func(offset uint32) unix.SockFilter { return stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
	ret := func(v uint32) unix.SockFilter { return stmt(unix.BPF_RET|unix.BPF_K, v) }
	// skipUnless skips some instructions unless the loaded value is k: those that handle k.
	skipUnless := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: k}
	}
	p := []unix.SockFilter{
		load(dataArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch},
		ret(unix.SECCOMP_RET_ALLOW),
		load(dataNr),
	}
	for nr, errno := range refused {
		p = append(p, skipUnless(nr, 1), ret(unix.SECCOMP_RET_ERRNO|uint32(errno)))
	}
	for _, s := range specs {
		switch s.nr {
		case unix.SYS_WRITE: // except to standard error
			p = append(p, skipUnless(s.nr, 4), load(dataArgs),
				skipUnless(2, 1), ret(unix.SECCOMP_RET_ALLOW), ret(unix.SECCOMP_RET_USER_NOTIF))
		case unix.SYS_MMAP: // except of anonymous memory
			p = append(p, skipUnless(s.nr, 4), load(dataArgs+3*8),
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: unix.MAP_ANONYMOUS},
				ret(unix.SECCOMP_RET_ALLOW), ret(unix.SECCOMP_RET_USER_NOTIF))
		default:
			p = append(p, skipUnless(s.nr, 1), ret(unix.SECCOMP_RET_USER_NOTIF))
		}
	}
	return append(p, ret(unix.SECCOMP_RET_ALLOW))
}

// installFilter installs the filter permanently on the calling thread only, and returns
// the descriptor on which its calls arrive.
func installFilter() (int, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("no_new_privs: %w", err)
	}
	insns := filterProgram()
	prog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	// A received call waits for its answer despite signals: otherwise the
	// signals of the runtime's scheduler would make it arrive twice.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(insns)
	if errno != 0 {
		return -1, fmt.Errorf("seccomp filter with user notification: %w", errno)
	}
	unix.CloseOnExec(int(fd))
	return int(fd), nil
}

// notification and response are struct seccomp_notif and seccomp_notif_resp.
type notification struct {
	id    uint64
	pid   uint32 // of the thread
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type response struct {
	id    uint64
	val   int64
	errno int32 // negative
	flags uint32
}

// receive waits for the next call.
func receive(fd int) (n notification, err error) {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV,
		uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return n, errno
	}
	return n, nil
}

// answer sends the response to a call.
func answer(fd int, r response) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND,
		uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return errno
	}
	return nil
}
