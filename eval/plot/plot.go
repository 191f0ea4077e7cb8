// Package plot draws line and scatter charts as SVG, for a report or a paper:
// axes with units and round numbers, linear, logarithmic or by the distance to
// 1, a legend, and marks that can be told apart in black and white.
//
// The same chart gives the same bytes.
package plot

import (
	"errors"
	"fmt"
	"math"
)

// ErrChart: a chart that cannot be drawn: no points, a value that is not
// finite, or one that a logarithmic axis does not have.
var ErrChart = errors.New("bad chart")

// Scale is how an axis maps values.
type Scale int

const (
	// Linear: equal steps are equally long.
	Linear Scale = iota
	// Log: equal factors are equally long. Values are above 0.
	Log
	// Nines: equal factors of the distance to 1 are equally long, as for a recall
	// of 0.9, 0.99, 0.999. Values are at most 1; 1 itself is at the upper end.
	Nines
)

// Axis is one of the two. What is not set follows from the points.
type Axis struct {
	Label string // with its unit
	Scale Scale
	// Min and Max are the ends, if Min < Max. Points beyond are left out, and
	// counted in a note; a line is cut at the frame.
	Min, Max float64
}

// Point of a series.
type Point struct {
	X, Y float64 // in the units of the axes
	// Title is shown when a reader points at it.
	Title string
}

// Mark is the shape of points.
type Mark int

// Marks, in the order in which series without one get them. NoMark draws the
// line alone.
const (
	Auto Mark = iota
	Circle
	Square
	Triangle
	Diamond
	Cross
	Plus
	Star
	Down
	NoMark
)

// Series is points that belong together.
type Series struct {
	Name   string // in the legend; "" is left out of it
	Points []Point
	Mark   Mark
	// Line joins the points in their order.
	Line bool
	// Strong draws a thick dark line, and larger marks, for what matters most.
	Strong bool
}

// Chart is a drawing.
type Chart struct {
	Title, Subtitle string
	X, Y            Axis
	Series          []Series
	// Width and Height in pixels; 0: 760 by 480.
	Width, Height int
}

const (
	usualWidth, usualHeight = 760, 480
	leastSize               = 200
	mostSize                = 20_000
)

func (c *Chart) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrChart, fmt.Sprintf(format, args...))
	}
	for _, n := range []int{c.Width, c.Height} {
		if n != 0 && (n < leastSize || n > mostSize) {
			return bad("size %d × %d", c.Width, c.Height)
		}
	}
	n := 0
	for _, a := range []struct {
		name       string
		axis       *Axis
		coordinate func(Point) float64
	}{{"x", &c.X, func(p Point) float64 { return p.X }}, {"y", &c.Y, func(p Point) float64 { return p.Y }}} {
		for _, end := range []float64{a.axis.Min, a.axis.Max} {
			if !finite(end) {
				return bad("the %s axis ends at %v", a.name, end)
			}
		}
		if a.axis.Min < a.axis.Max && a.axis.Scale == Log && a.axis.Min <= 0 {
			return bad("the logarithmic %s axis begins at %v", a.name, a.axis.Min)
		}
		if a.axis.Min < a.axis.Max && a.axis.Scale == Nines && a.axis.Max > 1 {
			return bad("the %s axis ends at %v, beyond 1", a.name, a.axis.Max)
		}
		for _, s := range c.Series {
			for _, p := range s.Points {
				n++
				v := a.coordinate(p)
				switch {
				case !finite(v):
					return bad("%s of a point of %q is %v", a.name, s.Name, v)
				case a.axis.Scale == Log && v <= 0, a.axis.Scale == Nines && v > 1:
					return bad("%s of a point of %q is %v, which its axis does not have", a.name, s.Name, v)
				}
			}
		}
	}
	if n == 0 {
		return bad("no points")
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
