package out

import (
	"fmt"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/index"
)

// How often progress is shown: on a terminal, and elsewhere.
const (
	redrawEvery = 100 * time.Millisecond
	lineEvery   = 10 * time.Second
)

// progress shows how far a long operation is.
type progress struct {
	console *Console
	now     func() time.Time

	stage string
	begin time.Time // of the stage
	first int64     // done when the stage was first reported
	shown time.Time
}

// Progress shows on a console what long operations report.
func Progress(c *Console, now func() time.Time) func(index.Progress) {
	p := &progress{console: c, now: now, shown: now()}
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
	parts := []string{r.Stage, fmt.Sprintf("%s %s", Count(r.Done), r.Unit)}
	if r.Total > 0 {
		parts[0] = fmt.Sprintf("%s %d%%", r.Stage, 100*min(r.Done, r.Total)/r.Total)
		parts[1] = fmt.Sprintf("%s of %s %s", Count(r.Done), Count(r.Total), r.Unit)
	}
	elapsed := now.Sub(p.begin).Seconds()
	if perSecond := float64(r.Done-p.first) / elapsed; elapsed > 0 && perSecond > 0 {
		parts = append(parts, rate(perSecond)+"/s")
		if left := float64(r.Total-r.Done) / perSecond; left > 0 && left < 1e6 {
			parts = append(parts, time.Duration(left*float64(time.Second)).Round(time.Second).String()+" left")
		}
	}
	return strings.Join(parts, ", ")
}
