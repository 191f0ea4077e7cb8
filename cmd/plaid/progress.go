package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/index"
)

// console is stderr. On a terminal it can hold a status line, which makes room
// for whatever else is written.
type console struct {
	mu     sync.Mutex
	w      io.Writer
	width  int // 0: not a terminal
	status bool
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	return c.w.Write(p)
}

func (c *console) erase() {
	if c.status {
		c.status = false
		_, _ = io.WriteString(c.w, "\r\x1b[K")
	}
}

// clear takes the status line away.
func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
}

// show puts a text in the place of the status line.
func (c *console) show(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = true
	_, _ = io.WriteString(c.w, "\r"+printable(text, c.width-1)+"\x1b[K")
}

// How often progress is shown: on a terminal, and elsewhere.
const (
	redrawEvery = 100 * time.Millisecond
	lineEvery   = 10 * time.Second
)

// progress shows how far a long operation is.
type progress struct {
	console *console
	now     func() time.Time

	stage string
	begin time.Time // of the stage
	first int64     // done when the stage was first reported
	shown time.Time
}

// progress is where long operations report to; nil with --quiet.
func (a *app) progress() func(index.Progress) {
	if a.quiet {
		return nil
	}
	p := &progress{console: a.console, now: a.now, shown: a.now()}
	return p.report
}

func (p *progress) report(r index.Progress) {
	now := p.now()
	if r.Stage != p.stage {
		p.stage, p.begin, p.first = r.Stage, now, r.Done
	}
	every := lineEvery
	if p.console.width > 0 {
		every = redrawEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	text := p.text(r, now)
	if p.console.width > 0 {
		p.console.show(text)
	} else {
		fmt.Fprintln(p.console, text)
	}
}

// text reads like: encode 45%, 1,200,000 of 2,600,000 tokens, 310.2k/s, 5s left.
func (p *progress) text(r index.Progress, now time.Time) string {
	parts := []string{r.Stage, fmt.Sprintf("%s %s", formatCount(r.Done), r.Unit)}
	if r.Total > 0 {
		parts[0] = fmt.Sprintf("%s %d%%", r.Stage, 100*min(r.Done, r.Total)/r.Total)
		parts[1] = fmt.Sprintf("%s of %s %s", formatCount(r.Done), formatCount(r.Total), r.Unit)
	}
	elapsed := now.Sub(p.begin).Seconds()
	if rate := float64(r.Done-p.first) / elapsed; elapsed > 0 && rate > 0 {
		parts = append(parts, formatRate(rate)+"/s")
		if left := float64(r.Total-r.Done) / rate; left > 0 && left < 1e6 {
			parts = append(parts, time.Duration(left*float64(time.Second)).Round(time.Second).String()+" left")
		}
	}
	return strings.Join(parts, ", ")
}
