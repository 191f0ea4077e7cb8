package out

import (
	"io"
	"sync"
)

// Console is stderr. On a terminal it can hold a status line, which makes room
// for whatever else is written. It is safe for several goroutines.
type Console struct {
	mu          sync.Mutex
	w           io.Writer
	width       int // 0: not a terminal
	statusShown bool
	// Resized, where set, is the width now: windows are made narrower.
	CurrentWidth func() int
}

// NewConsole has the width of a terminal in columns, or 0 for what is none.
func NewConsole(w io.Writer, width int) *Console { return &Console{w: w, width: width} }

func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseStatus()
	return c.w.Write(p)
}

func (c *Console) eraseStatus() {
	if c.statusShown {
		c.statusShown = false
		_, _ = io.WriteString(c.w, "\r\x1b[K")
	}
}

// ErasingStatus is a writer to another end of the program, such as stdout, that takes the
// status line away first: on a terminal both are the same screen.
func (c *Console) ErasingStatus(w io.Writer) io.Writer { return statusEraser{c, w} }

type statusEraser struct {
	console *Console
	w       io.Writer
}

func (a statusEraser) Write(p []byte) (int, error) {
	a.console.mu.Lock()
	defer a.console.mu.Unlock()
	a.console.eraseStatus()
	return a.w.Write(p)
}

// ClearStatus takes the status line away.
func (c *Console) ClearStatus() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseStatus()
}

// showStatus puts a text in the place of the status line.
func (c *Console) showStatus(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statusShown = true
	if c.CurrentWidth != nil {
		if now := c.CurrentWidth(); now > 0 {
			c.width = now
		}
	}
	_, _ = io.WriteString(c.w, "\r"+Printable(text, c.width-1)+"\x1b[K")
}
