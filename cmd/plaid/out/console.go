package out

import (
	"io"
	"sync"
)

// Console is stderr. On a terminal it can hold a status line, which makes room
// for whatever else is written. It is safe for several goroutines.
type Console struct {
	mu     sync.Mutex
	w      io.Writer
	width  int // 0: not a terminal
	status bool
	// Resized, where set, is the width now: windows are made narrower.
	Resized func() int
}

// NewConsole has the width of a terminal in columns, or 0 for what is none.
func NewConsole(w io.Writer, width int) *Console { return &Console{w: w, width: width} }

func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	return c.w.Write(p)
}

func (c *Console) erase() {
	if c.status {
		c.status = false
		_, _ = io.WriteString(c.w, "\r\x1b[K")
	}
}

// Before is a writer to another end of the program, such as stdout, that takes the
// status line away first: on a terminal both are the same screen.
func (c *Console) Before(w io.Writer) io.Writer { return after{c, w} }

type after struct {
	console *Console
	w       io.Writer
}

func (a after) Write(p []byte) (int, error) {
	a.console.mu.Lock()
	defer a.console.mu.Unlock()
	a.console.erase()
	return a.w.Write(p)
}

// Clear takes the status line away.
func (c *Console) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
}

// show puts a text in the place of the status line.
func (c *Console) show(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = true
	if c.Resized != nil {
		if now := c.Resized(); now > 0 {
			c.width = now
		}
	}
	_, _ = io.WriteString(c.w, "\r"+Printable(text, c.width-1)+"\x1b[K")
}
