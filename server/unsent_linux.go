package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// maxUnsent is how much of an answer may wait in the kernel of this machine.
const maxUnsent = 128 << 10

// limitUnsent bounds what waits in the kernel to be sent. A write comes back when a good
// part of that was taken: of the megabytes that a buffer can have otherwise, a slow but
// steady reader would not take enough within the time for stalls.
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
