//go:build unix

package reliability

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// link is a way to a server on which what is sent may take long or not arrive.
type link struct {
	t  testing.TB
	to string

	mu      sync.Mutex
	change  *sync.Cond
	delay   time.Duration // of each piece
	rate    int           // bytes a second, 0: all there is
	stalled [2]bool       // to the server, and from it: nothing passes, and nobody is told
	conns   map[net.Conn]bool
	cuts    int
}

const (
	toServer = iota
	fromServer
)

func newLink(t testing.TB) *link {
	l := &link{t: t, conns: map[net.Conn]bool{}}
	l.change = sync.NewCond(&l.mu)
	return l
}

// open listens for what is to reach HOST:PORT.
func (l *link) open(to string) (at string) {
	l.to = to
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = listener.Close(); l.set(func() { l.stalled = [2]bool{} }); l.cut() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", l.to)
			if err != nil {
				_ = c.Close()
				continue
			}
			l.set(func() { l.conns[c], l.conns[d] = true, true })
			go l.pass(c, d, toServer)
			go l.pass(d, c, fromServer)
		}
	}()
	return listener.Addr().String()
}

func (l *link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.change.Broadcast()
}

// cut ends all connections in the middle of whatever they carry.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	for c := range l.conns {
		_ = c.Close()
	}
	l.change.Broadcast()
}

// wait returns how long a piece of some bytes takes, when it may pass; false: it was cut.
func (l *link) wait(from net.Conn, way, bytes int) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cuts := l.cuts; l.stalled[way]; l.change.Wait() {
		if l.cuts != cuts {
			return 0, false
		}
	}
	took := l.delay
	if l.rate > 0 {
		took += time.Duration(bytes) * time.Second / time.Duration(l.rate)
	}
	return took, l.conns[from]
}

func (l *link) pass(from, to net.Conn, way int) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		l.set(func() { delete(l.conns, from); delete(l.conns, to) })
	}()
	b := make([]byte, 4<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			took, there := l.wait(from, way, n)
			if !there {
				return
			}
			time.Sleep(took)
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
