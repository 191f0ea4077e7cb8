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

// UnitBytes is the unit of progress that is shown as sizes are.
const UnitBytes = "bytes"

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
		if p.stage != "" && p.console.width > 0 {
			p.shown = time.Time{} // what stands there is over
		}
		p.stage, p.begin, p.first = r.Stage, now, r.Done
	}
	p.show(now, func() string { return p.text(r, now) })
}

// show shows a text, if it is time.
func (p *progress) show(now time.Time, line func() string) {
	every := lineEvery
	if p.console.width > 0 {
		every = redrawEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	text := line()
	if p.console.width > 0 {
		p.console.show(text)
	} else {
		fmt.Fprintln(p.console, text)
	}
}

// text reads like: encode 45%, 1,200,000 of 2,600,000 tokens, 310.2k/s, 5s left.
func (p *progress) text(r index.Progress, now time.Time) string {
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
	elapsed := now.Sub(p.begin).Seconds()
	if perSecond := float64(r.Done-p.first) / elapsed; elapsed > 0 && perSecond > 0 {
		parts = append(parts, rate(perSecond)+"/s")
		parts = append(parts, left(r.Total-r.Done, perSecond)...)
	}
	return strings.Join(parts, ", ")
}

// left is the time that what is to be done will take; nothing if that is not known.
func left(todo int64, perSecond float64) []string {
	s := float64(todo) / perSecond
	if s > 0 && s < 1e6 {
		return []string{time.Duration(s*float64(time.Second)).Round(time.Second).String() + " left"}
	}
	return nil
}

// Texts is how far the encoding of texts is.
type Texts struct {
	Done, Total     int   // texts, with those that were done before; Total 0: not known
	Bytes, AllBytes int64 // the same of their bytes
	Tokens          int64 // of the model, computed now
}

// TextProgress shows on a console how far texts are encoded.
func TextProgress(c *Console, now func() time.Time) func(Texts) {
	p, first := &progress{console: c, now: now, shown: now(), begin: now()}, int64(-1)
	return func(t Texts) {
		if first < 0 {
			first = t.Bytes
		}
		at := now()
		p.show(at, func() string { return textsText(t, first, at.Sub(p.begin).Seconds()) })
	}
}

// textsText reads like: texts 45%, 2,300 of 5,183, 600,000 tokens, 35.2k tokens/s, 20s left.
func textsText(t Texts, first int64, elapsed float64) string {
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
		if perSecond := float64(t.Bytes-first) / elapsed; perSecond > 0 {
			parts = append(parts, left(t.AllBytes-t.Bytes, perSecond)...)
		}
	}
	return strings.Join(parts, ", ")
}
