package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// maxUnsent is how many bytes of an answer may wait in the kernel of this machine.
const maxUnsent = 128 << 10

// limitUnsent limits the bytes that wait in the kernel to be sent. A write returns when the client has
// taken a good part of them. Without the limit a buffer could hold megabytes, and a slow but steady
// client would not take enough of them within the time for stalls.
func limitUnsent(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
