//go:build linux && (amd64 || arm64)

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// parseCall reads the arguments of a call. It returns nil if the call does not concern files below the root.
func (r *Run) parseCall(n notification) (*Call, error) {
	tid := int(n.pid)
	c := &Call{tid: tid, req: n}
	var s spec
	for _, s = range specs {
		if s.nr == uint32(n.nr) {
			break
		}
	}
	c.Op = s.op
	var err error
	switch s.shape {
	case onFD:
		return r.parseFDCall(c)
	case onPath:
		c.Path, err = readPath(tid, unix.AT_FDCWD, n.args[0])
	case atPath:
		c.Path, err = readPath(tid, int(int32(n.args[0])), n.args[1])
	case twoPaths:
		c.Path, err = readPath(tid, unix.AT_FDCWD, n.args[0])
		if err == nil {
			c.To, err = readPath(tid, unix.AT_FDCWD, n.args[1])
		}
	case atPaths:
		c.Path, err = readPath(tid, int(int32(n.args[0])), n.args[1])
		if err == nil {
			c.To, err = readPath(tid, int(int32(n.args[2])), n.args[3])
		}
	default:
		return nil, fmt.Errorf("system call %d is not followed", n.nr)
	}
	if err != nil || !r.isBelowRoot(c.Path) && (c.To == "" || !r.isBelowRoot(c.To)) {
		return nil, err
	}
	switch c.req.nr {
	case unix.SYS_OPENAT:
		c.Op = openOp(c.Path, n.args[2])
	case unix.SYS_UNLINKAT:
		if n.args[2]&unix.AT_REMOVEDIR != 0 {
			c.Op = Rmdir
		}
	default:
		if s.op == Open {
			c.Op = openOp(c.Path, n.args[1])
		}
	}
	return c, nil
}

// parseFDCall is parseCall for calls with a file descriptor.
func (r *Run) parseFDCall(c *Call) (*Call, error) {
	fd, a := int(int32(c.req.args[0])), c.req.args
	if c.Op == Map {
		fd = int(int32(a[4]))
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.tid, fd))
	if errors.Is(err, fs.ErrNotExist) { // not open: the call itself will fail
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if c.Op == Write && fd == 1 {
		c.Op = Print
		c.Data, err = readMemory(c.tid, a[1], int64(a[2]))
		return c, err
	}
	if !r.isBelowRoot(name) {
		return nil, nil
	}
	c.Path = name
	var info unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", c.tid, fd), &info); err != nil {
		return nil, err
	}
	c.Node = Node{uint64(info.Dev), info.Ino}
	switch c.Op {
	case Lock:
		if a[1]&unix.LOCK_UN != 0 {
			c.Op = Unlock
		}
	case Write:
		c.Size, c.Offset = int64(a[2]), int64(a[3])
		if c.req.nr == unix.SYS_WRITE {
			if c.Offset, err = writeOffset(c.tid, fd); err != nil {
				return nil, err
			}
		}
		if r.options.Record {
			c.Data, err = readMemory(c.tid, a[1], c.Size)
		}
	case Truncate:
		c.Size = int64(a[1])
	}
	return c, err
}

// openOp returns Create for an open that changes something, and otherwise Open.
func openOp(path string, flags uint64) Op {
	if flags&unix.O_TRUNC != 0 {
		return Create
	}
	if flags&unix.O_CREAT != 0 {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return Create
		}
	}
	return Open
}

// readPath reads the path argument at an address and makes it absolute.
func readPath(tid, dir int, address uint64) (string, error) {
	var text []byte
	for len(text) < unix.PathMax { // page by page: the next page may not be mapped
		b, err := readMemory(tid, address, int64(4096-address%4096))
		if err != nil {
			return "", err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			text = append(text, b[:i]...)
			break
		}
		text = append(text, b...)
		address += uint64(len(b))
	}
	name := string(text)
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	base := fmt.Sprintf("/proc/%d/cwd", tid)
	if dir != unix.AT_FDCWD {
		base = fmt.Sprintf("/proc/%d/fd/%d", tid, dir)
	}
	base, err := os.Readlink(base)
	return filepath.Join(base, name), err
}

// readMemory reads n bytes of the memory of a process.
func readMemory(tid int, address uint64, n int64) ([]byte, error) {
	b := make([]byte, n)
	for done := 0; done < len(b); {
		local := []unix.Iovec{{Base: &b[done]}}
		local[0].SetLen(len(b) - done)
		remote := []unix.RemoteIovec{{Base: uintptr(address) + uintptr(done), Len: len(b) - done}}
		m, err := unix.ProcessVMReadv(tid, local, remote, 0)
		if err != nil {
			return nil, fmt.Errorf("reading memory of process %d: %w", tid, err)
		}
		if m == 0 {
			return nil, fmt.Errorf("reading memory of process %d: %d bytes of %d", tid, done, n)
		}
		done += m
	}
	return b, nil
}

// writeOffset returns the offset of the next write to an open file.
func writeOffset(tid, fd int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", tid, fd))
	if err != nil {
		return 0, err
	}
	pos, flags := int64(0), int64(0)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "pos":
			pos, err = strconv.ParseInt(value, 10, 64)
		case "flags":
			flags, err = strconv.ParseInt(value, 8, 64)
		}
		if err != nil {
			return 0, err
		}
	}
	if flags&unix.O_APPEND == 0 {
		return pos, nil
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", tid, fd))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// canPerform reports whether this process can perform a call instead of the
// other process. Opening, locking and mapping must happen in the other process.
func canPerform(op Op) bool {
	switch op {
	case Create, Open, Lock, Unlock, Map:
		return false
	}
	return true
}

// perform performs a call, or the first n bytes of a write.
func (r *Run) perform(c *Call, n int64) (val int64, err error) {
	a := c.req.args
	switch c.Op {
	case Rename:
		flags := uint(0)
		if c.req.nr == unix.SYS_RENAMEAT2 {
			flags = uint(a[4])
		}
		return 0, unix.Renameat2(unix.AT_FDCWD, c.Path, unix.AT_FDCWD, c.To, flags)
	case Link:
		return 0, unix.Link(c.Path, c.To)
	case Unlink:
		return 0, unix.Unlink(c.Path)
	case Rmdir:
		return 0, unix.Rmdir(c.Path)
	case Mkdir:
		return 0, unix.Mkdir(c.Path, uint32(a[modeArg(c)]))
	}
	if c.Op == Chmod && c.req.nr != unix.SYS_FCHMOD {
		return 0, unix.Chmod(c.Path, uint32(a[modeArg(c)]))
	}
	if c.Op == Chown && c.req.nr != unix.SYS_FCHOWN {
		i := modeArg(c)
		return 0, unix.Chown(c.Path, int(int32(a[i])), int(int32(a[i+1])))
	}
	fd, err := unix.PidfdGetfd(r.pidfd, int(int32(a[0])), 0)
	if err != nil {
		return 0, err
	}
	// Close it at once: an open file would keep its lock.
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	switch c.Op {
	case Write:
		return r.write(c, fd, n)
	case Truncate:
		return 0, unix.Ftruncate(fd, int64(a[1]))
	case Allocate:
		return 0, unix.Fallocate(fd, uint32(a[1]), int64(a[2]), int64(a[3]))
	case Sync:
		return 0, unix.Fsync(fd)
	case Chmod:
		return 0, unix.Fchmod(fd, uint32(a[1]))
	case Chown:
		return 0, unix.Fchown(fd, int(int32(a[1])), int(int32(a[2])))
	}
	return 0, fmt.Errorf("%s cannot be carried out", c.Op)
}

// write writes the first n bytes of a write.
func (r *Run) write(c *Call, fd int, n int64) (int64, error) {
	data := c.Data
	if data == nil {
		var err error
		if data, err = readMemory(c.tid, c.req.args[1], c.Size); err != nil {
			return 0, err
		}
	}
	data = data[:min(n, c.Size)]
	var m int
	var err error
	if c.req.nr == unix.SYS_WRITE {
		m, err = unix.Write(fd, data)
	} else {
		m, err = unix.Pwrite(fd, data, c.Offset)
	}
	return int64(max(m, 0)), err
}

// modeArg returns the index of the argument after the path.
func modeArg(c *Call) int {
	for _, s := range specs {
		if s.nr == uint32(c.req.nr) && s.shape == atPath {
			return 2
		}
	}
	return 1
}
