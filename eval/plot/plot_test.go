package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// element is a part of a drawing.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

func (e *element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (e *element) num(t require.TestingT, name string) float64 {
	v, err := strconv.ParseFloat(e.attr(name), 64)
	require.NoError(t, err, "%s of %s", name, e.XMLName.Local)
	return v
}

// find lists the elements of a name (and class, where given) below e.
func (e *element) find(name, class string) []element {
	var out []element
	for _, c := range e.Children {
		if c.XMLName.Local == name && (class == "" || c.attr("class") == class) {
			out = append(out, c)
		}
		out = append(out, c.find(name, class)...)
	}
	return out
}

func draw(t require.TestingT, c *Chart) *element {
	b, err := c.SVG()
	require.NoError(t, err)
	var root element
	require.NoError(t, xml.Unmarshal(b, &root), "%s", b)
	require.Equal(t, "svg", root.XMLName.Local)
	again, err := c.SVG()
	require.NoError(t, err)
	require.Equal(t, string(b), string(again))
	return &root
}

func TestPointsAreInPlace(t *testing.T) {
	c := &Chart{
		Title: "Recall <&> latency", X: Axis{Label: "ms", Scale: Log, Min: 1, Max: 100}, Y: Axis{Label: "recall", Min: 0, Max: 1},
		Series: []Series{{Name: "a & b", Line: true, Mark: Circle, Points: []Point{{1, 0, "first"}, {10, 0.5, ""}, {100, 1, ""}}}},
	}
	root := draw(t, c)
	frame := root.find("g", "axes")[0].find("rect", "")[0]
	left, top := frame.num(t, "x"), frame.num(t, "y")
	width, height := frame.num(t, "width"), frame.num(t, "height")
	group := root.find("g", "series")[0]
	circles := group.find("circle", "")
	require.Len(t, circles, 3)
	for i, want := range [][2]float64{{0, 1}, {0.5, 0.5}, {1, 0}} { // of the frame, from its top left
		require.InDelta(t, left+want[0]*width, circles[i].num(t, "cx"), 0.011)
		require.InDelta(t, top+want[1]*height, circles[i].num(t, "cy"), 0.011)
	}
	require.Equal(t, "first", circles[0].find("title", "")[0].Text)
	line := strings.Fields(group.find("polyline", "")[0].attr("points"))
	require.Len(t, line, 3)
	require.Equal(t, circles[1].attr("cx")+","+circles[1].attr("cy"), line[1])

	var texts []string
	for _, e := range root.find("text", "") {
		texts = append(texts, e.Text)
	}
	for _, want := range []string{"Recall <&> latency", "ms", "recall", "a & b", "1", "10", "100", "0.4"} {
		require.Contains(t, texts, want)
	}
	// Each label stands at its value.
	for _, e := range root.find("g", "axes")[0].find("text", "") {
		if e.Text == "10" && e.attr("text-anchor") == "middle" {
			require.InDelta(t, left+width/2, e.num(t, "x"), 0.011)
		}
	}
}

func TestSeriesCanBeToldApartWithoutColour(t *testing.T) {
	c := &Chart{}
	for i := range 11 {
		c.Series = append(c.Series, Series{Name: strconv.Itoa(i), Line: true, Points: []Point{{1, float64(i), ""}, {2, float64(i) + 1, ""}}})
	}
	c.Series = append(c.Series, Series{Name: "front", Line: true, Strong: true, Mark: Circle, Points: []Point{{1, 1, ""}, {2, 2, ""}}})
	d := drawing{Chart: c}
	type look struct {
		mark   Mark
		hollow bool
		dash   string
		strong bool
	}
	seen := map[look]bool{}
	marks := map[[2]any]bool{}
	for i, s := range c.Series[:11] {
		st := d.style(i)
		shape := [2]any{st.mark, st.hollow}
		require.False(t, marks[shape], "two series of mark %v", shape)
		marks[shape] = true
		seen[look{st.mark, st.hollow, st.dash, s.Strong}] = true
	}
	require.Len(t, seen, 11)
	strong := d.style(11)
	require.Greater(t, strong.width, d.style(0).width)
	root := draw(t, c)
	require.Len(t, root.find("g", "series"), 12)
	require.Len(t, root.find("g", "legend")[0].find("text", ""), 12)
}

func TestMarks(t *testing.T) {
	for m := Circle; m < NoMark; m++ {
		root := draw(t, &Chart{Series: []Series{{Mark: m, Points: []Point{{1, 1, "x"}}}}})
		g := root.find("g", "series")[0]
		require.Equal(t, 1, len(g.find("path", ""))+len(g.find("circle", "")), "mark %d", m)
		require.Empty(t, root.find("g", "legend"), "without a name")
	}
	root := draw(t, &Chart{Series: []Series{{Mark: NoMark, Line: true, Points: []Point{{1, 1, ""}, {2, 2, ""}}}}})
	require.Empty(t, root.find("g", "series")[0].find("circle", ""))
	require.Len(t, root.find("polyline", ""), 1)
}

// Where the ends of the axes are not given no point lies on the frame.
func TestPointsAreInside(t *testing.T) {
	for _, scale := range []Scale{Linear, Log, Nines} {
		root := draw(t, &Chart{X: Axis{Scale: Log}, Y: Axis{Scale: scale}, Series: []Series{{Mark: Circle, Points: []Point{{1, .1, ""}, {10, .5, ""}, {100, 1, ""}}}}})
		frame := root.find("g", "axes")[0].find("rect", "")[0]
		left, top := frame.num(t, "x"), frame.num(t, "y")
		right, bottom := left+frame.num(t, "width"), top+frame.num(t, "height")
		for _, c := range root.find("circle", "") {
			require.Greater(t, c.num(t, "cx"), left+markSize)
			require.Less(t, c.num(t, "cx"), right-markSize)
			require.Greater(t, c.num(t, "cy"), top+markSize)
			require.Less(t, c.num(t, "cy"), bottom-markSize)
		}
	}
}

func TestPointsOutsideAreCounted(t *testing.T) {
	root := draw(t, &Chart{Y: Axis{Min: 0.9, Max: 1}, Series: []Series{{Mark: Circle, Points: []Point{{1, 0.5, ""}, {2, 0.95, ""}, {3, 1, ""}}}}})
	require.Len(t, root.find("circle", ""), 2)
	found := false
	for _, e := range root.find("text", "") {
		found = found || e.Text == "outside: 1"
	}
	require.True(t, found)
}

func TestTicks(t *testing.T) {
	labels := func(a Axis, values ...float64) (out []string) {
		for _, x := range newRuler(a, values, 0, 100, 5).ticks {
			if x.label != "" {
				out = append(out, x.label)
			}
		}
		return out
	}
	require.Equal(t, []string{"0", "2", "4", "6", "8", "10"}, labels(Axis{}, 0.3, 9.4))
	require.Equal(t, []string{"0.95", "0.96", "0.97", "0.98", "0.99", "1.00"}, labels(Axis{}, 0.951, 1))
	require.Equal(t, []string{"-1.0", "-0.5", "0.0", "0.5", "1.0"}, labels(Axis{}, 0, 0))
	require.Equal(t, []string{"-5", "0", "5"}, labels(Axis{Min: -6, Max: 6}, 0))
	require.Equal(t, []string{"1", "10", "100", "1000", "10000"}, labels(Axis{Scale: Log, Min: 1, Max: 1e4}, 5))
	require.Equal(t, []string{"0.5", "1", "2", "5", "10"}, labels(Axis{Scale: Log, Min: 0.5, Max: 10}, 5))
	require.Equal(t, []string{"1.2", "1.4", "1.6", "1.8", "2.0"}, labels(Axis{Scale: Log}, 1.2, 2.1))
	require.Equal(t, []string{"0.5", "0.9", "0.95", "0.99", "1"}, labels(Axis{Scale: Nines}, 0.4, 0.992, 1))
	require.Equal(t, []string{"0.9", "0.95", "0.99"}, labels(Axis{Scale: Nines, Min: 0.9, Max: 0.99}, 0.95))
}

func TestChartErrors(t *testing.T) {
	one := func(x, y float64) []Series { return []Series{{Points: []Point{{x, y, ""}}}} }
	for name, c := range map[string]*Chart{
		"empty": {}, "no points": {Series: []Series{{Name: "a"}}},
		"NaN": {Series: one(math.NaN(), 1)}, "Inf": {Series: one(1, math.Inf(1))},
		"log of 0": {X: Axis{Scale: Log}, Series: one(0, 1)}, "beyond 1": {Y: Axis{Scale: Nines}, Series: one(1, 1.1)},
		"ends": {X: Axis{Min: 0, Max: math.Inf(1)}, Series: one(1, 1)}, "log from 0": {X: Axis{Scale: Log, Min: 0, Max: 2}, Series: one(1, 1)},
		"nines to 2": {Y: Axis{Scale: Nines, Min: 0, Max: 2}, Series: one(1, 1)}, "small": {Width: 10, Series: one(1, 1)},
	} {
		_, err := c.SVG()
		require.ErrorIs(t, err, ErrChart, name)
		require.ErrorIs(t, c.WriteSVG(io.Discard), ErrChart, name)
	}
	boom := errors.New("boom")
	require.ErrorIs(t, (&Chart{Series: one(1, 1)}).WriteSVG(failing{boom}), boom)
	var b bytes.Buffer
	require.NoError(t, (&Chart{Series: one(1, 1)}).WriteSVG(&b))
	require.Contains(t, b.String(), "<svg")
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Whatever is drawn lies within the frame, and order is kept.
func TestRulerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := Scale(rapid.IntRange(0, 2).Draw(t, "scale"))
		of := rapid.Float64Range(-1e6, 1e6)
		switch scale {
		case Log:
			of = rapid.Map(rapid.Float64Range(-9, 9), func(x float64) float64 { return math.Pow(10, x) })
		case Nines:
			of = rapid.Float64Range(0, 1)
		}
		values := rapid.SliceOfN(of, 1, 8).Draw(t, "values")
		r := newRuler(Axis{Scale: scale}, values, 100, 500, 6)
		for _, v := range values {
			require.True(t, r.holds(v), "%v in %v..%v", v, r.min, r.max)
			p := r.position(v)
			require.False(t, p < 100-1e-6 || p > 500+1e-6, "%v at %v", v, p)
			for _, o := range values {
				if o > v {
					require.GreaterOrEqual(t, r.position(o), p-1e-6)
				}
			}
		}
		labels := 0
		for _, x := range r.ticks {
			require.True(t, r.holds(x.value), "tick %v in %v..%v", x.value, r.min, r.max)
			if x.label != "" {
				labels++
			}
		}
		require.Less(t, labels, 40)
		draw(t, &Chart{Y: Axis{Scale: scale}, Series: []Series{{Name: "s", Points: []Point{{1, values[0], "<"}}}}})
	})
}
