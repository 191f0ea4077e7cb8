package out

import (
	"io"
	"sync"
)

// Console writes to stderr. On a terminal it can show a status line, which it erases before
// anything else is written. It is safe for concurrent use.
type Console struct {
	mu sync.Mutex
	w  io.Writer
	// width is the number of columns of the terminal. 0 means that it is not a terminal.
	width       int
	statusShown bool
	// CurrentWidth, if not nil, returns the width of the terminal now, since windows are resized.
	CurrentWidth func() int
}

// NewConsole returns a console that writes to w. width is the number of columns of the terminal, or
// 0 if w is not a terminal.
func NewConsole(w io.Writer, width int) *Console { return &Console{w: w, width: width} }

// Write erases the status line and writes p.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseStatus()
	return c.w.Write(p)
}

// eraseStatus erases the status line; the caller holds mu.
func (c *Console) eraseStatus() {
	if c.statusShown {
		c.statusShown = false
		_, _ = io.WriteString(c.w, "\r\x1b[K")
	}
}

// ErasingStatus returns a writer to w, such as stdout, that erases the status line first: on a
// terminal both are the same screen.
func (c *Console) ErasingStatus(w io.Writer) io.Writer { return statusEraser{c, w} }

// statusEraser is the writer of [Console.ErasingStatus].
type statusEraser struct {
	console *Console
	w       io.Writer
}

// Write implements [io.Writer].
func (a statusEraser) Write(p []byte) (int, error) {
	a.console.mu.Lock()
	defer a.console.mu.Unlock()
	a.console.eraseStatus()
	return a.w.Write(p)
}

// ClearStatus erases the status line.
func (c *Console) ClearStatus() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseStatus()
}

// showStatus replaces the status line.
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
