package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Colours that stay apart for most kinds of colour blindness, and in grey by
// their lightness (Okabe and Ito, "Color Universal Design", 2008).
var palette = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8b5a2b"}

var dashes = []string{"", "6 3", "2 3", "8 3 2 3", "1 2", "12 4"}

const (
	ink       = "#222222"
	grid      = "#dddddd"
	textSize  = 13
	charWidth = 7.1 // of a text of that size, about
	markSize  = 4.2
)

// drawing is a chart being drawn.
type drawing struct {
	*Chart
	b                        bytes.Buffer
	w, h                     float64
	left, right, top, bottom float64 // of the frame
	x, y                     *ruler
	outside                  int
}

// WriteSVG writes the chart as a file of its own. Errors wrap [ErrChart], or
// are w's.
func (c *Chart) WriteSVG(w io.Writer) error {
	b, err := c.SVG()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// SVG draws the chart.
func (c *Chart) SVG() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	d := &drawing{Chart: c, w: usualWidth, h: usualHeight}
	if c.Width > 0 {
		d.w = float64(c.Width)
	}
	if c.Height > 0 {
		d.h = float64(c.Height)
	}
	d.layout()
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g" font-family="Helvetica, Arial, sans-serif" font-size="%d" fill="%s">`+"\n",
		d.w, d.h, textSize, ink)
	if c.Title != "" {
		fmt.Fprintf(&d.b, "<title>%s</title>\n", escape(c.Title))
	}
	fmt.Fprintf(&d.b, `<rect width="%g" height="%g" fill="white"/>`+"\n", d.w, d.h)
	d.head()
	d.axes()
	d.series()
	d.legend()
	d.b.WriteString("</svg>\n")
	return d.b.Bytes(), nil
}

// layout leaves room for titles, labels and the legend, and fits the axes.
func (d *drawing) layout() {
	d.left, d.right, d.top, d.bottom = 70, d.w-20, 20, d.h-56
	if d.Title != "" {
		d.top += 22
	}
	if d.Subtitle != "" {
		d.top += 18
	}
	if n := d.legendWidth(); n > 0 {
		d.right -= n + 12
	}
	d.right = max(d.right, d.left+d.w/4)
	var xs, ys []float64
	for _, s := range d.Series {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	d.x = newRuler(d.X, xs, d.left, d.right, int((d.right-d.left)/90))
	d.y = newRuler(d.Y, ys, d.bottom, d.top, int((d.bottom-d.top)/50))
}

func (d *drawing) legendWidth() float64 {
	longest := 0
	for _, s := range d.Series {
		longest = max(longest, len([]rune(s.Name)))
	}
	if longest == 0 {
		return 0
	}
	return 40 + float64(min(longest, 40))*charWidth
}

func (d *drawing) text(x, y float64, anchor, extra, text string) {
	fmt.Fprintf(&d.b, `<text x="%s" y="%s" text-anchor="%s"%s>%s</text>`+"\n", px(x), px(y), anchor, extra, escape(text))
}

func (d *drawing) line(x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(&d.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="1"/>`+"\n", px(x1), px(y1), px(x2), px(y2), colour)
}

func (d *drawing) head() {
	y := 26.0
	if d.Title != "" {
		d.text(d.left, y, "start", ` font-size="16" font-weight="bold"`, d.Title)
		y += 20
	}
	if d.Subtitle != "" {
		d.text(d.left, y, "start", ` fill="#555555"`, d.Subtitle)
	}
}

func (d *drawing) axes() {
	d.b.WriteString(`<g class="axes">` + "\n")
	for _, t := range d.x.ticks {
		x := d.x.position(t.value)
		if t.label == "" {
			d.line(x, d.bottom, x, d.bottom+3, ink)
			continue
		}
		d.line(x, d.top, x, d.bottom, grid)
		d.line(x, d.bottom, x, d.bottom+6, ink)
		d.text(x, d.bottom+21, "middle", "", t.label)
	}
	for _, t := range d.y.ticks {
		y := d.y.position(t.value)
		if t.label == "" {
			d.line(d.left-3, y, d.left, y, ink)
			continue
		}
		d.line(d.left, y, d.right, y, grid)
		d.line(d.left-6, y, d.left, y, ink)
		d.text(d.left-10, y+4.5, "end", "", t.label)
	}
	fmt.Fprintf(&d.b, `<rect x="%s" y="%s" width="%s" height="%s" fill="none" stroke="%s"/>`+"\n",
		px(d.left), px(d.top), px(d.right-d.left), px(d.bottom-d.top), ink)
	d.text((d.left+d.right)/2, d.h-12, "middle", "", d.X.Label)
	middle := (d.top + d.bottom) / 2
	d.text(16, middle, "middle", fmt.Sprintf(` transform="rotate(-90 16 %s)"`, px(middle)), d.Y.Label)
	d.b.WriteString("</g>\n")
}

// style is what tells series apart: colour, shape, dashes.
type style struct {
	colour, dash string
	mark         Mark
	hollow       bool // so that a mark inside shows, or to tell it from a full one
	width, size  float64
}

func (d *drawing) style(i int) style {
	s := d.Series[i]
	plain, marked := 0, 0 // series before it, those that are strong or have a mark left out
	for _, o := range d.Series[:i] {
		if !o.Strong {
			plain++
		}
		if o.Mark == Auto {
			marked++
		}
	}
	st := style{colour: palette[plain%len(palette)], dash: dashes[plain%len(dashes)], mark: s.Mark, width: 1.3, size: markSize}
	if s.Mark == Auto {
		st.mark = Circle + Mark(marked)%(NoMark-Circle)
		st.hollow = marked/int(NoMark-Circle)%2 == 1
	}
	if s.Strong {
		st.colour, st.dash, st.hollow, st.width, st.size = "#000000", "", true, 2.2, markSize*1.6
	}
	return st
}

func (d *drawing) series() {
	d.b.WriteString(`<clipPath id="frame"><rect x="` + px(d.left-8) + `" y="` + px(d.top-8) + `" width="` + px(d.right-d.left+16) + `" height="` + px(d.bottom-d.top+16) + `"/></clipPath>` + "\n")
	for i, s := range d.Series {
		st := d.style(i)
		fmt.Fprintf(&d.b, `<g class="series" clip-path="url(#frame)" stroke="%s" fill="none"><title>%s</title>`+"\n", st.colour, escape(s.Name))
		if s.Line && len(s.Points) > 1 {
			var path []string
			for _, p := range s.Points {
				path = append(path, px(d.x.position(p.X))+","+px(d.y.position(p.Y)))
			}
			fmt.Fprintf(&d.b, `<polyline points="%s" stroke-width="%g" stroke-linejoin="round"%s/>`+"\n", strings.Join(path, " "), st.width, dashed(st.dash))
		}
		for _, p := range s.Points {
			if !d.x.holds(p.X) || !d.y.holds(p.Y) {
				d.outside++
				continue
			}
			d.mark(d.x.position(p.X), d.y.position(p.Y), st, p.Title)
		}
		d.b.WriteString("</g>\n")
	}
	if d.outside > 0 {
		d.text(d.right, d.h-12, "end", ` font-size="11" fill="#555555"`, fmt.Sprintf("outside: %d", d.outside))
	}
}

func dashed(dash string) string {
	if dash == "" {
		return ""
	}
	return ` stroke-dasharray="` + dash + `"`
}

// mark draws a shape around (x, y).
func (d *drawing) mark(x, y float64, st style, title string) {
	if st.mark == NoMark {
		return
	}
	fill := st.colour
	if st.hollow {
		fill = "white"
		if st.size > markSize {
			fill = "none"
		}
	}
	r := st.size
	at := func(dx, dy float64) string { return px(x+dx*r) + " " + px(y+dy*r) }
	var shape string
	switch st.mark {
	case Square:
		shape = "M" + at(-.9, -.9) + "L" + at(.9, -.9) + "L" + at(.9, .9) + "L" + at(-.9, .9) + "Z"
	case Triangle:
		shape = "M" + at(0, -1.15) + "L" + at(1.05, .8) + "L" + at(-1.05, .8) + "Z"
	case Down:
		shape = "M" + at(0, 1.15) + "L" + at(1.05, -.8) + "L" + at(-1.05, -.8) + "Z"
	case Diamond:
		shape = "M" + at(0, -1.25) + "L" + at(1.25, 0) + "L" + at(0, 1.25) + "L" + at(-1.25, 0) + "Z"
	case Cross:
		shape, fill = "M"+at(-.9, -.9)+"L"+at(.9, .9)+"M"+at(-.9, .9)+"L"+at(.9, -.9), "none"
	case Plus:
		shape, fill = "M"+at(-1.1, 0)+"L"+at(1.1, 0)+"M"+at(0, -1.1)+"L"+at(0, 1.1), "none"
	case Star:
		shape, fill = "M"+at(-1.1, 0)+"L"+at(1.1, 0)+"M"+at(-.6, -1)+"L"+at(.6, 1)+"M"+at(-.6, 1)+"L"+at(.6, -1), "none"
	}
	note := "/>"
	if title != "" {
		note = "><title>" + escape(title) + "</title>"
	}
	if shape == "" {
		fmt.Fprintf(&d.b, `<circle cx="%s" cy="%s" r="%s" fill="%s" stroke-width="1.4"%s`, px(x), px(y), px(r), fill, note)
		shape = "circle"
	} else {
		fmt.Fprintf(&d.b, `<path d="%s" fill="%s" stroke-width="1.4"%s`, shape, fill, note)
		shape = "path"
	}
	if title != "" {
		d.b.WriteString("</" + shape + ">")
	}
	d.b.WriteString("\n")
}

func (d *drawing) legend() {
	if d.legendWidth() == 0 {
		return
	}
	d.b.WriteString(`<g class="legend">` + "\n")
	x, y := d.right+14, d.top+8
	for i, s := range d.Series {
		if s.Name == "" {
			continue
		}
		st := d.style(i)
		fmt.Fprintf(&d.b, `<g stroke="%s" fill="none">`, st.colour)
		if s.Line {
			fmt.Fprintf(&d.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke-width="%g"%s/>`, px(x), px(y), px(x+26), px(y), st.width, dashed(st.dash))
		}
		d.mark(x+13, y, st, "")
		d.b.WriteString("</g>\n")
		name := []rune(s.Name)
		if len(name) > 40 {
			name = append(name[:39], '…')
		}
		d.text(x+33, y+4.5, "start", "", string(name))
		y += 20
	}
	d.b.WriteString("</g>\n")
}

// px is a length with two digits, −0 excepted.
func px(v float64) string {
	v = math.Round(v*100) / 100
	if v == 0 {
		v = 0
	}
	return fmt.Sprintf("%g", v)
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // to memory
	return b.String()
}
