package out

import (
	"fmt"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/index"
)

// Intervals at which progress is shown: on a terminal, and elsewhere.
const (
	redrawInterval = 100 * time.Millisecond
	lineInterval   = 10 * time.Second
)

// UnitBytes is the unit of progress in bytes, which is shown as sizes are.
const UnitBytes = "bytes"

// progress shows how far a long operation has come.
type progress struct {
	console *Console
	now     func() time.Time

	stage string
	// stageBegan is when the current stage began.
	stageBegan time.Time
	// stageFirst is the amount that was done when the stage was first reported.
	stageFirst int64
	lastShown  time.Time
}

// Progress returns a function that shows on a console what a long operation reports.
func Progress(c *Console, now func() time.Time) func(index.Progress) {
	p := &progress{console: c, now: now, lastShown: now()}
	return p.report
}

// report shows a report, if it is time.
func (p *progress) report(r index.Progress) {
	now := p.now()
	if r.Stage != p.stage {
		if p.stage != "" && p.console.width > 0 {
			p.lastShown = time.Time{} // replace the status line of the last stage at once
		}
		p.stage, p.stageBegan, p.stageFirst = r.Stage, now, r.Done
	}
	p.showIfDue(now, func() string { return p.progressText(r, now) })
}

// showIfDue shows a line if the last one is old enough.
func (p *progress) showIfDue(now time.Time, line func() string) {
	interval := lineInterval
	if p.console.width > 0 {
		interval = redrawInterval
	}
	if now.Sub(p.lastShown) < interval {
		return
	}
	p.lastShown = now
	text := line()
	if p.console.width > 0 {
		p.console.showStatus(text)
	} else {
		fmt.Fprintln(p.console, text)
	}
}

// progressText formats a report: encode 45%, 1,200,000 of 2,600,000 tokens, 310.2k/s, 5s left.
func (p *progress) progressText(r index.Progress, now time.Time) string {
	if r.Unit == "" {
		return r.Stage + " …"
	}
	count, rate, unit := Count[int64], Rate, " "+r.Unit
	if r.Unit == UnitBytes {
		count, rate, unit = Bytes, func(x float64) string { return Bytes(int64(x)) }, ""
	}
	parts := []string{r.Stage, count(r.Done) + unit}
	if r.Total > 0 {
		parts[0] = fmt.Sprintf("%s %d%%", r.Stage, 100*min(r.Done, r.Total)/r.Total)
		parts[1] = fmt.Sprintf("%s of %s%s", count(r.Done), count(r.Total), unit)
	}
	elapsed := now.Sub(p.stageBegan).Seconds()
	if perSecond := float64(r.Done-p.stageFirst) / elapsed; elapsed > 0 && perSecond > 0 {
		parts = append(parts, rate(perSecond)+"/s")
		parts = append(parts, timeLeft(r.Total-r.Done, perSecond)...)
	}
	return strings.Join(parts, ", ")
}

// timeLeft formats the time that the remaining work takes, as a list of one part; an empty list if
// it is unknown.
func timeLeft(remaining int64, perSecond float64) []string {
	s := float64(remaining) / perSecond
	if s > 0 && s < 1e6 {
		return []string{time.Duration(s*float64(time.Second)).Round(time.Second).String() + " left"}
	}
	return nil
}

// Texts reports how far the encoding of texts has come.
type Texts struct {
	// Done and Total count texts, including those that an earlier run encoded; a Total of 0 means
	// unknown.
	Done, Total int
	// Bytes and AllBytes count the bytes of the same texts.
	Bytes, AllBytes int64
	// Tokens counts tokens of the model that this run has encoded.
	Tokens int64
}

// TextProgress returns a function that shows on a console how far the encoding of texts has come.
func TextProgress(c *Console, now func() time.Time) func(Texts) {
	p := &progress{
		console:    c,
		now:        now,
		lastShown:  now(),
		stageBegan: now(),
	}
	firstBytes := int64(-1) // until the first report
	return func(t Texts) {
		if firstBytes < 0 {
			firstBytes = t.Bytes
		}
		reported := now()
		p.showIfDue(reported, func() string {
			return textProgressLine(t, firstBytes, reported.Sub(p.stageBegan).Seconds())
		})
	}
}

// textProgressLine formats a report: texts 45%, 2,300 of 5,183, 600,000 tokens, 35.2k tokens/s, 20s
// left. firstBytes is the amount that an earlier run had done.
func textProgressLine(t Texts, firstBytes int64, elapsed float64) string {
	parts := []string{Plural(t.Done, "text")}
	if t.AllBytes > 0 {
		parts = []string{
			fmt.Sprintf("texts %d%%", 100*min(t.Bytes, t.AllBytes)/t.AllBytes),
			fmt.Sprintf("%s of %s", Count(t.Done), Count(t.Total)),
		}
	}
	parts = append(parts, Plural(t.Tokens, "token"))
	if elapsed > 0 {
		parts = append(parts, Rate(float64(t.Tokens)/elapsed)+" tokens/s")
		if perSecond := float64(t.Bytes-firstBytes) / elapsed; perSecond > 0 {
			parts = append(parts, timeLeft(t.AllBytes-t.Bytes, perSecond)...)
		}
	}
	return strings.Join(parts, ", ")
}
